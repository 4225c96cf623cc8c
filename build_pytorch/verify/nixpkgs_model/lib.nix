# The part of nixpkgs' `lib` that recipes and the model use, with the same names and results.
let
  inherit (builtins) foldl' isAttrs;

  trivial = rec {
    id = x: x;
    const = x: _: x;
    flip = f: a: b: f b a;

    # A set with __functor can be called like a function; callPackage accepts both.
    isFunction =
      f: builtins.isFunction f || (isAttrs f && f ? __functor && isFunction (f.__functor f));
    functionArgs =
      f:
      if isAttrs f then
        f.__functionArgs or (functionArgs (f.__functor f))
      else
        builtins.functionArgs f;
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

    # overrideAttrs accepts a set, `old: { }` or `final: old: { }`.
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

  inherit (import ./data.nix) lists attrsets strings;

  base =
    trivial
    // fixedPoints
    // lists
    // attrsets
    // strings
    // import ./licenses-and-platforms.nix
    // {
      inherit
        trivial
        fixedPoints
        lists
        attrsets
        strings
        ;
      inherit (builtins) isBool isInt toJSON;

      # Placeholders for hashes that are not known yet.
      fakeHash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
      fakeSha256 = "0000000000000000000000000000000000000000000000000000000000000000";
    };
  customisation = import ./overriding.nix base;
in
base // customisation // { inherit customisation; }
