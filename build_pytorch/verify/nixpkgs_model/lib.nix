# The part of nixpkgs' `lib` that recipes and the model use, with the same names and results.
let
  inherit (builtins)
    all any attrNames concatLists concatStringsSep elem filter foldl' head isAttrs isList isString
    length listToAttrs map mapAttrs match replaceStrings split stringLength substring;

  trivial = rec {
    id = x: x;
    const = x: _: x;
    flip = f: a: b: f b a;

    # A set with __functor can be called like a function; callPackage accepts both.
    isFunction =
      f: builtins.isFunction f || (isAttrs f && f ? __functor && isFunction (f.__functor f));
    functionArgs =
      f:
      if isAttrs f then f.__functionArgs or (functionArgs (f.__functor f)) else builtins.functionArgs f;
    setFunctionArgs = f: args: { __functor = _: f; __functionArgs = args; };
    mirrorFunctionArgs = f: g: setFunctionArgs g (functionArgs f);

    warn = message: builtins.trace "evaluation warning: ${message}";
    warnIf = condition: message: if condition then warn message else id;
    throwIf = condition: message: if condition then throw message else id;
    throwIfNot = condition: throwIf (!condition);
    assertMsg = condition: message: condition || throw message;
  };

  fixedPoints = rec {
    fix = f: let x = f x; in x;
    extends = overlay: f: final: let prev = f final; in prev // overlay final prev;
    composeExtensions =
      f: g: final: prev:
      let fromF = f final prev; in fromF // g final (prev // fromF);
    composeManyExtensions = foldl' composeExtensions (_: _: { });

    # overrideAttrs accepts a set, `old: { }` or `final: old: { }`.
    toExtension =
      f:
      if !trivial.isFunction f then
        _: _: f
      else
        final: prev:
        let once = f prev; in if trivial.isFunction once then f final prev else once;
  };

  lists = rec {
    inherit all any elem filter foldl' head isList length map;
    inherit (builtins) concatLists concatMap tail;
    optional = condition: x: if condition then [ x ] else [ ];
    optionals = condition: xs: if condition then xs else [ ];
    toList = x: if isList x then x else [ x ];
    flatten = x: if isList x then concatLists (map flatten x) else [ x ];
    imap1 = f: xs: builtins.genList (n: f (n + 1) (builtins.elemAt xs n)) (length xs);
    unique = foldl' (seen: x: if elem x seen then seen else seen ++ [ x ]) [ ];
    subtractLists = gone: filter (x: !(elem x gone));
    intersectLists = kept: filter (x: elem x kept);
    last = xs: builtins.elemAt xs (length xs - 1);
    remove = x: filter (y: y != x);
  };

  attrsets = rec {
    inherit (builtins) attrNames attrValues hasAttr isAttrs listToAttrs mapAttrs removeAttrs;
    nameValuePair = name: value: { inherit name value; };
    genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
    filterAttrs = keep: set: removeAttrs set (filter (name: !(keep name set.${name})) (attrNames set));
    mapAttrsToList = f: set: map (name: f name set.${name}) (attrNames set);
    optionalAttrs = condition: set: if condition then set else { };
    isDerivation = x: (x.type or null) == "derivation";
    recurseIntoAttrs = set: set // { recurseForDerivations = true; };
    dontRecurseIntoAttrs = set: set // { recurseForDerivations = false; };

    # The named output of a package if it has several outputs.
    getOutput =
      output: pkg: if pkg.outputSpecified or false then pkg else pkg.${output} or pkg.out or pkg;
    getBin = getOutput "bin";
    getLib = getOutput "lib";
    getDev = getOutput "dev";
  };

  strings = rec {
    inherit concatStringsSep isString match replaceStrings stringLength substring;
    concatStrings = concatStringsSep "";
    concatMapStrings = f: xs: concatStrings (map f xs);
    concatMapStringsSep = separator: f: xs: concatStringsSep separator (map f xs);
    optionalString = condition: text: if condition then text else "";
    hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;
    hasSuffix =
      suffix: text:
      let rest = stringLength text - stringLength suffix; in
      rest >= 0 && substring rest (-1) text == suffix;
    hasInfix = infix: text: length (split (escapeRegex infix) "${text}") > 1;
    removePrefix =
      prefix: text: if hasPrefix prefix text then substring (stringLength prefix) (-1) text else text;
    removeSuffix =
      suffix: text:
      if hasSuffix suffix text then
        substring 0 (stringLength text - stringLength suffix) text
      else
        text;
    splitString =
      separator: text: filter isString (split (escapeRegex separator) (toString text));
    escape = characters: replaceStrings characters (map (c: "\\${c}") characters);
    escapeRegex = escape [ "\\" "[" "{" "(" ")" "^" "$" "?" "*" "+" "|" "." ];
    makeLibraryPath = pkgs: concatMapStringsSep ":" (pkg: "${attrsets.getLib pkg}/lib") pkgs;
    makeBinPath = pkgs: concatMapStringsSep ":" (pkg: "${attrsets.getBin pkg}/bin") pkgs;
    cmakeFeature = name: value: "-D${name}:STRING=${value}";
    cmakeBool = name: value: "-D${name}:BOOL=${if value then "TRUE" else "FALSE"}";
    versionOlder = a: b: builtins.compareVersions b a == 1;
    versionAtLeast = a: b: !versionOlder a b;
    versions = {
      major = version: head (builtins.splitVersion version);
      majorMinor = version: head (match "([^.]*([.][^.]*)?).*" version);
    };
    getName = pkg: pkg.pname or (builtins.parseDrvName pkg.name).name;
    getVersion = pkg: pkg.version or (builtins.parseDrvName pkg.name).version;

    # Store names allow few characters; nixpkgs replaces each run of other ones by a dash.
    sanitizeDerivationName =
      name:
      concatMapStrings (part: if isList part then "-" else part) (
        split "[^[:alnum:]+._?=-]+" (toString name)
      );
  };

  license = shortName: fullName: { inherit shortName fullName; free = true; };
  unfreeLicense = shortName: fullName: license shortName fullName // { free = false; };
  linux = [
    "aarch64-linux" "armv7l-linux" "i686-linux" "powerpc64le-linux" "riscv64-linux" "x86_64-linux"
  ];
  darwin = [ "aarch64-darwin" "x86_64-darwin" ];

  base =
    trivial
    // fixedPoints
    // lists
    // attrsets
    // strings
    // {
      inherit trivial fixedPoints lists attrsets strings;
      inherit (builtins) isBool isInt toJSON;

      licenses = {
        asl20 = license "asl20" "Apache License 2.0";
        bsd2 = license "bsd2" "BSD 2-clause \"Simplified\" License";
        bsd3 = license "bsd3" "BSD 3-clause \"New\" or \"Revised\" License";
        mit = license "mit" "MIT License";
        nvidiaCudaRedist = unfreeLicense "CUDA EULA" "CUDA Toolkit End User License Agreement (EULA)";
        unfree = unfreeLicense "unfree" "Unfree";
      };
      platforms = {
        inherit linux darwin;
        unix = linux ++ darwin;
        all = linux ++ darwin;
      };
      maintainers = { };

      # A placeholder for a hash that is not known yet.
      fakeHash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    };
  customisation = import ./overriding.nix base;
in
base // customisation // { inherit customisation; }
