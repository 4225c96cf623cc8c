# The part of nixpkgs' `lib` that recipes and the model use, with the same names and results.
let
  inherit (builtins)
    concatLists concatStringsSep elem filter foldl' head isAttrs isList isString length listToAttrs map
    replaceStrings split stringLength substring;

  license = shortName: free: { inherit shortName free; };
  linux = [ "aarch64-linux" "armv7l-linux" "i686-linux" "powerpc64le-linux" "riscv64-linux" "x86_64-linux" ];
  darwin = [ "aarch64-darwin" "x86_64-darwin" ];

  base = rec {
    inherit (builtins)
      all any attrNames attrValues compareVersions concatLists concatMap concatStringsSep elem filter
      foldl' hasAttr head isAttrs isBool isInt isList isString length listToAttrs map mapAttrs match
      removeAttrs replaceStrings stringLength substring tail toJSON;

    id = x: x;

    # A set with __functor can be called like a function; callPackage accepts both.
    isFunction =
      f: builtins.isFunction f || (isAttrs f && f ? __functor && isFunction (f.__functor f));
    functionArgs =
      f:
      if isAttrs f then f.__functionArgs or (functionArgs (f.__functor f)) else builtins.functionArgs f;
    setFunctionArgs = f: args: { __functor = _: f; __functionArgs = args; };

    warn = message: builtins.trace "evaluation warning: ${message}";
    warnIf = condition: message: if condition then warn message else id;
    throwIf = condition: message: if condition then throw message else id;
    throwIfNot = condition: throwIf (!condition);
    assertMsg = condition: message: condition || throw message;

    fix = f: let x = f x; in x;
    extends = overlay: f: final: let prev = f final; in prev // overlay final prev;

    # overrideAttrs accepts a set, `old: { }` or `final: old: { }`.
    toExtension =
      f:
      if !isFunction f then
        _: _: f
      else
        final: prev:
        let once = f prev; in if isFunction once then f final prev else once;

    optional = condition: x: if condition then [ x ] else [ ];
    optionals = condition: xs: if condition then xs else [ ];
    toList = x: if isList x then x else [ x ];
    flatten = x: if isList x then concatLists (map flatten x) else [ x ];
    unique = foldl' (seen: x: if elem x seen then seen else seen ++ [ x ]) [ ];

    nameValuePair = name: value: { inherit name value; };
    genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
    filterAttrs =
      keep: set: removeAttrs set (filter (name: !(keep name set.${name})) (attrNames set));
    optionalAttrs = condition: set: if condition then set else { };
    isDerivation = x: (x.type or null) == "derivation";

    # The named output of a package if it has several outputs.
    getOutput =
      output: pkg: if pkg.outputSpecified or false then pkg else pkg.${output} or pkg.out or pkg;
    getBin = getOutput "bin";
    getLib = getOutput "lib";
    getDev = getOutput "dev";
    getName = pkg: pkg.pname or (builtins.parseDrvName pkg.name).name;

    concatMapStringsSep = separator: f: xs: concatStringsSep separator (map f xs);
    optionalString = condition: text: if condition then text else "";
    hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;
    hasSuffix = suffix: text: text != removeSuffix suffix text || suffix == "";
    removeSuffix =
      suffix: text:
      let kept = stringLength text - stringLength suffix; in
      if kept >= 0 && substring kept (-1) text == suffix then substring 0 kept text else text;
    cmakeFeature = name: value: "-D${name}:STRING=${value}";
    cmakeBool = name: value: "-D${name}:BOOL=${if value then "TRUE" else "FALSE"}";
    versionOlder = a: b: compareVersions b a == 1;
    versionAtLeast = a: b: !versionOlder a b;
    versions = {
      major = version: head (builtins.splitVersion version);
      majorMinor = version: head (match "([^.]*([.][^.]*)?).*" version);
    };
    # Store names allow few characters; nixpkgs replaces each run of other ones by a dash.
    sanitizeDerivationName =
      name:
      concatMapStringsSep "" (part: if isList part then "-" else part) (
        split "[^[:alnum:]+._?=-]+" (toString name)
      );

    licenses = {
      bsd3 = license "bsd3" true;
      issl = license "issl" false;
      nvidiaCudaRedist = license "CUDA EULA" false;
    };
    platforms = rec { inherit linux darwin; unix = linux ++ darwin; all = unix; };

    # A placeholder for a hash that is not known yet.
    fakeHash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  };
in
base // import ./overriding.nix base
