# The part of nixpkgs' `lib` that recipes and this model use, with the same names and results.
# How packages are overridden is in overriding.nix and belongs to `lib` as well.
let
  inherit (builtins)
    all
    any
    attrNames
    concatLists
    concatStringsSep
    elem
    filter
    foldl'
    head
    isAttrs
    isList
    isString
    length
    listToAttrs
    map
    mapAttrs
    match
    replaceStrings
    split
    stringLength
    substring
    ;

  trivial = rec {
    id = x: x;
    const = x: _: x;
    flip = f: a: b: f b a;

    # A set with __functor can be called like a function, and callPackage is given both.
    isFunction = f: builtins.isFunction f || (isAttrs f && f ? __functor && isFunction (f.__functor f));
    functionArgs =
      f: if isAttrs f then f.__functionArgs or (functionArgs (f.__functor f)) else builtins.functionArgs f;
    setFunctionArgs = f: args: {
      __functor = _: f;
      __functionArgs = args;
    };
    mirrorFunctionArgs = f: g: setFunctionArgs g (functionArgs f);

    warn = message: builtins.trace "evaluation warning: ${message}";
    warnIf = condition: message: if condition then warn message else id;
    throwIf = condition: message: if condition then throw message else id;
    throwIfNot = condition: throwIf (!condition);
    assertMsg = condition: message: condition || throw message;
    importJSON = path: builtins.fromJSON (builtins.readFile path);
    boolToString = b: if b then "true" else "false";
  };

  fixedPoints = rec {
    fix =
      f:
      let
        x = f x;
      in
      x;
    extends =
      overlay: f: final:
      let
        prev = f final;
      in
      prev // overlay final prev;
    composeExtensions =
      f: g: final: prev:
      let
        fromF = f final prev;
      in
      fromF // g final (prev // fromF);
    composeManyExtensions = foldl' composeExtensions (_: _: { });

    # overrideAttrs takes a set, `old: { }` or `final: old: { }`.
    toExtension =
      f:
      if !trivial.isFunction f then
        _: _: f
      else
        final: prev:
        let
          once = f prev;
        in
        if trivial.isFunction once then f final prev else once;
  };

  lists = rec {
    inherit
      all
      any
      elem
      filter
      foldl'
      head
      isList
      length
      map
      ;
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
    inherit (builtins)
      attrNames
      attrValues
      hasAttr
      isAttrs
      listToAttrs
      mapAttrs
      removeAttrs
      ;
    nameValuePair = name: value: { inherit name value; };
    genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
    filterAttrs =
      keep: set: removeAttrs set (filter (name: !(keep name set.${name})) (attrNames set));
    mapAttrsToList = f: set: map (name: f name set.${name}) (attrNames set);
    optionalAttrs = condition: set: if condition then set else { };
    attrByPath =
      path: default: set:
      if path == [ ] then
        set
      else if isAttrs set && set ? ${head path} then
        attrByPath (builtins.tail path) default set.${head path}
      else
        default;
    recursiveUpdate =
      a: b:
      a
      // mapAttrs (
        name: value:
        if isAttrs value && isAttrs (a.${name} or null) then recursiveUpdate a.${name} value else value
      ) b;
    isDerivation = x: (x.type or null) == "derivation";
    recurseIntoAttrs = set: set // { recurseForDerivations = true; };
    dontRecurseIntoAttrs = set: set // { recurseForDerivations = false; };

    # Which output of a package is meant: the named one where it has several.
    getOutput =
      output: pkg:
      if !(pkg ? outputSpecified) || !pkg.outputSpecified then pkg.${output} or pkg.out or pkg else pkg;
    getBin = getOutput "bin";
    getLib = getOutput "lib";
    getDev = getOutput "dev";
  };

  strings = rec {
    inherit
      concatStringsSep
      isString
      match
      replaceStrings
      stringLength
      substring
      ;
    concatStrings = concatStringsSep "";
    concatMapStrings = f: xs: concatStrings (map f xs);
    concatMapStringsSep =
      separator: f: xs:
      concatStringsSep separator (map f xs);
    optionalString = condition: text: if condition then text else "";
    hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;
    hasSuffix =
      suffix: text:
      let
        rest = stringLength text - stringLength suffix;
      in
      rest >= 0 && substring rest (-1) text == suffix;
    hasInfix = infix: text: length (split (escapeRegex infix) "${text}") > 1;
    removePrefix =
      prefix: text: if hasPrefix prefix text then substring (stringLength prefix) (-1) text else text;
    removeSuffix =
      suffix: text:
      if hasSuffix suffix text then substring 0 (stringLength text - stringLength suffix) text else text;
    splitString =
      separator: text: filter isString (split (escapeRegex separator) (toString text));
    escape = characters: replaceStrings characters (map (c: "\\${c}") characters);
    escapeRegex = escape [ "\\" "[" "{" "(" ")" "^" "$" "?" "*" "+" "|" "." ];
    escapeShellArg =
      arg:
      if match "[[:alnum:],._+:@%/-]+" (toString arg) != null then
        toString arg
      else
        "'${replaceStrings [ "'" ] [ "'\\''" ] (toString arg)}'";
    makeSearchPathOutput =
      output: folder: pkgs:
      concatStringsSep ":" (map (pkg: "${attrsets.getOutput output pkg}/${folder}") (filter (pkg: pkg != null) pkgs));
    makeLibraryPath = makeSearchPathOutput "lib" "lib";
    makeBinPath = makeSearchPathOutput "bin" "bin";
    cmakeFeature = name: value: "-D${name}:STRING=${value}";
    cmakeBool = name: value: "-D${name}:BOOL=${if value then "TRUE" else "FALSE"}";
    cmakeOptionType = type: name: value: "-D${name}:${type}=${value}";
    versionOlder = a: b: builtins.compareVersions b a == 1;
    versionAtLeast = a: b: !versionOlder a b;
    versions = {
      major = version: builtins.elemAt (builtins.splitVersion version) 0;
      majorMinor = version: concatStringsSep "." (takeTwo (builtins.splitVersion version));
    };
    takeTwo = xs: [ (head xs) ] ++ (if length xs > 1 then [ (builtins.elemAt xs 1) ] else [ ]);
    getName = pkg: if isString pkg then (builtins.parseDrvName pkg).name else pkg.pname or (builtins.parseDrvName pkg.name).name;
    getVersion = pkg: if isString pkg then (builtins.parseDrvName pkg).version else pkg.version or (builtins.parseDrvName pkg.name).version;

    # A store name has few characters; nixpkgs puts a dash for each run of others.
    sanitizeDerivationName =
      name:
      concatStrings (
        map (part: if isList part then "-" else part) (split "[^[:alnum:]+._?=-]+" (toString name))
      );
  };

  meta = import ./licenses-and-platforms.nix;
in
trivial
// fixedPoints
// lists
// attrsets
// strings
// meta
// {
  inherit
    trivial
    fixedPoints
    lists
    attrsets
    strings
    ;
  inherit (strings.versions) major majorMinor;
  inherit (builtins) isBool isInt toJSON fromJSON;

  # Hashes that no file has, for "evaluate now, fill in the real one later".
  fakeHash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  fakeSha256 = "0000000000000000000000000000000000000000000000000000000000000000";
}
