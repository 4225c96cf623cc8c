# The functions of nixpkgs' `lib` for lists, attribute sets and strings: same names and results.
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

    # The named output of a package if it has several outputs.
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
      concatStringsSep ":" (
        map (pkg: "${attrsets.getOutput output pkg}/${folder}") (filter (pkg: pkg != null) pkgs)
      );
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
    parsed = pkg: builtins.parseDrvName (if isString pkg then pkg else pkg.name);
    getName = pkg: pkg.pname or (parsed pkg).name;
    getVersion = pkg: pkg.version or (parsed pkg).version;

    # Store names allow few characters; nixpkgs replaces each run of other ones by a dash.
    sanitizeDerivationName =
      name:
      concatStrings (
        map (part: if isList part then "-" else part) (split "[^[:alnum:]+._?=-]+" (toString name))
      );
  };
in
{
  inherit lists attrsets strings;
}
