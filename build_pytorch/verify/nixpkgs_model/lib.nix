# The part of nixpkgs' `lib` that recipes and the model use, with the same names and results.
let
  inherit (builtins) concatLists isAttrs isList stringLength substring;
  base = rec {
    inherit (builtins)
      any attrNames attrValues concatMap concatStringsSep elem filter foldl' head length listToAttrs map
      mapAttrs removeAttrs replaceStrings;
    id = x: x;
    # A set with __functor can be called like a function; callPackage accepts both.
    isFunction =
      f: builtins.isFunction f || (isAttrs f && f ? __functor && isFunction (f.__functor f));
    functionArgs =
      f:
      if isAttrs f then f.__functionArgs or (functionArgs (f.__functor f)) else builtins.functionArgs f;
    setFunctionArgs = f: args: { __functor = _: f; __functionArgs = args; };
    throwIf = condition: message: if condition then throw message else id;
    fix = f: let x = f x; in x;
    extends = overlay: f: final: let prev = f final; in prev // overlay final prev;
    # overrideAttrs accepts a set, `old: { }` or `final: old: { }`.
    toExtension =
      f: final: prev:
      let once = if isFunction f then f prev else f; in if isFunction once then f final prev else once;
    optional = condition: x: if condition then [ x ] else [ ];
    optionals = condition: xs: if condition then xs else [ ];
    optionalAttrs = condition: set: if condition then set else { };
    optionalString = condition: text: if condition then text else "";
    flatten = x: if isList x then concatLists (map flatten x) else [ x ];
    genAttrs = names: f: listToAttrs (map (name: { inherit name; value = f name; }) names);
    filterAttrs = keep: set: removeAttrs set (filter (name: !(keep name set.${name})) (attrNames set));
    # The named output of a package if it has several outputs.
    getOutput =
      output: pkg: if pkg.outputSpecified or false then pkg else pkg.${output} or pkg.out or pkg;
    getBin = getOutput "bin";
    getLib = getOutput "lib";
    getDev = getOutput "dev";
    removeSuffix =
      suffix: text:
      let kept = stringLength text - stringLength suffix; in
      if kept >= 0 && substring kept (-1) text == suffix then substring 0 kept text else text;
    cmakeFeature = name: value: "-D${name}:STRING=${value}";
    cmakeBool = name: value: "-D${name}:BOOL=${if value then "TRUE" else "FALSE"}";
    licenses = {
      bsd3 = { shortName = "bsd3"; free = true; };
      issl = { shortName = "issl"; free = false; };
      nvidiaCudaRedist = { shortName = "CUDA EULA"; free = false; };
    };
    platforms = rec {
      linux = [ "aarch64-linux" "armv7l-linux" "i686-linux" "powerpc64le-linux" "riscv64-linux" "x86_64-linux" ];
      darwin = [ "aarch64-darwin" "x86_64-darwin" ];
      unix = linux ++ darwin;
    };
    # A placeholder for a hash that is not known yet.
    fakeHash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  };
in
base // import ./overriding.nix base
