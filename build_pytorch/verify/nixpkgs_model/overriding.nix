# How nixpkgs lets one package or one set of packages be changed from outside: makeOverridable,
# callPackage, scopes and extendDerivation, with its semantics and its error messages.
lib:
let
  inherit (lib)
    extends
    functionArgs
    isFunction
    mirrorFunctionArgs
    setFunctionArgs
    ;
  inherit (builtins)
    attrNames
    head
    intersectAttrs
    isAttrs
    listToAttrs
    map
    ;

  # Calls f and remembers how, so that `override` can call it again with other arguments. What
  # overrideAttrs changed is part of what is called again: that is why the two survive each other
  # in any order. f itself refuses an argument it does not know ("called with unexpected
  # argument"), so it needs exact formals.
  makeOverridable =
    f:
    let
      mirrorArgs = mirrorFunctionArgs f;
    in
    mirrorArgs (
      origArgs:
      let
        result = f origArgs;
        overrideWith = newArgs: origArgs // (if isFunction newArgs then newArgs origArgs else newArgs);
        overrideArgs = mirrorArgs (newArgs: makeOverridable f (overrideWith newArgs));
        overrideResult = g: makeOverridable (mirrorArgs (args: g (f args))) origArgs;
      in
      if isAttrs result then
        result
        // {
          override = overrideArgs;
          ${if result ? overrideAttrs then "overrideAttrs" else null} =
            change: overrideResult (x: x.overrideAttrs change);
        }
      else if isFunction result then
        setFunctionArgs result (functionArgs result) // { override = overrideArgs; }
      else
        result
    );

  # Gives f those of its arguments that the package set has. One that neither the set nor the
  # caller gives, and that has no default, is an abort in nixpkgs as well: tryEval does not catch it.
  callPackageWith =
    autoArgs: fn: args:
    let
      f = if isFunction fn then fn else import fn;
      formals = functionArgs f;
      allArgs = intersectAttrs formals autoArgs // args;
      missing = builtins.filter (name: !formals.${name} && !(allArgs ? ${name})) (attrNames formals);
    in
    if missing == [ ] then
      makeOverridable f allArgs
    else
      abort (
        "lib.customisation.callPackageWith: Function called without required argument "
        + "\"${head missing}\""
      );

  # A set of packages whose members find each other first, and the outer set after that.
  makeScope =
    newScope: f:
    let
      self = f self // {
        newScope = scope: newScope (self // scope);
        callPackage = self.newScope { };
        overrideScope = overlay: makeScope newScope (extends overlay f);
        packages = f;
      };
    in
    self;

  # Adds attributes to a derivation without changing it, and lets every output have a path only
  # where `condition` holds. That is how nixpkgs refuses a package and can still show its name.
  extendDerivation =
    condition: extra: drv:
    let
      common = drv // listToAttrs outputs // { all = map (output: output.value) outputs; } // extra;
      outputs = map (name: {
        inherit name;
        value = common // {
          inherit (drv.${name}) type outputName;
          outputSpecified = true;
          drvPath = assert condition; drv.${name}.drvPath;
          outPath = assert condition; drv.${name}.outPath;
        };
      }) (drv.outputs or [ "out" ]);
    in
    common
    // {
      drvPath = assert condition; drv.drvPath;
      outPath = assert condition; drv.outPath;
    };
in
{
  inherit
    makeOverridable
    callPackageWith
    makeScope
    extendDerivation
    ;
}
