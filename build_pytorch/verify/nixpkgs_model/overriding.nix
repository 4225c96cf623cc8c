# The functions of nixpkgs that change a package or a package set: makeOverridable, callPackage,
# scopes and extendDerivation, with the same semantics and error messages.
lib:
let
  inherit (lib) extends functionArgs isFunction setFunctionArgs;
  inherit (builtins) attrNames elemAt filter head intersectAttrs isAttrs listToAttrs map match;
in
rec {
  # Calls f and keeps the arguments, so that `override` can call f again with other ones, and with the
  # changes of overrideAttrs. f must have exact formals: Nix then refuses an unknown argument.
  makeOverridable =
    f:
    let
      mirrorArgs = g: setFunctionArgs g (functionArgs f);
    in
    mirrorArgs (
      origArgs:
      let
        result = f origArgs;
        overrideWith = newArgs: origArgs // (if isFunction newArgs then newArgs origArgs else newArgs);
        override = mirrorArgs (newArgs: makeOverridable f (overrideWith newArgs));
        overrideResult = g: makeOverridable (mirrorArgs (args: g (f args))) origArgs;
        overrideAttrs = change: overrideResult (x: x.overrideAttrs change);
      in
      if isAttrs result then
        result // { inherit override; ${if result ? overrideAttrs then "overrideAttrs" else null} = overrideAttrs; }
      else if isFunction result then setFunctionArgs result (functionArgs result) // { inherit override; }
      else result
    );

  # Calls f with those of its arguments that the package set has. If one without a default is in
  # neither the set nor the arguments of the caller, it aborts as nixpkgs does.
  callPackageWith =
    autoArgs: fn: args:
    let
      formals = functionArgs fn;
      allArgs = intersectAttrs formals autoArgs // args;
      missing = filter (name: !formals.${name} && !(allArgs ? ${name})) (attrNames formals);
      message = "callPackageWith: Function called without required argument";
    in
    if !isFunction fn then calledFile autoArgs fn args
    else if missing == [ ] then makeOverridable fn allArgs
    else abort "${message} \"${head missing}\"";

  # The package of a file. A fact shows which file it was. Files of a repository that is not fetched
  # are stand-ins: cudnn-13_0.nix is the cudnn of cudaPackages_13_0.
  calledFile =
    autoArgs: file: args:
    let
      path = toString file;
      name = match ".*/repositories/.*/\\.flox/pkgs/([a-z_]+)-([0-9]+)_([0-9]+)\\.nix" path;
      major = "cudaPackages_${elemAt name 1}";
      set = autoArgs."${major}_${elemAt name 2}" or autoArgs.${major};
      result = if name == null then callPackageWith autoArgs (import file) args else set.${head name};
      passthru = old: { passthru = old.passthru or { } // { calledFile = path; }; };
    in
    if result ? overrideAttrs then result.overrideAttrs passthru else result;

  # A package set whose members are looked up first in the set itself, then in the outer set.
  makeScope =
    newScope: f:
    let
      self = f self // {
        newScope = scope: newScope (self // scope);
        callPackage = self.newScope { };
        overrideScope = overlay: makeScope newScope (extends overlay f);
      };
    in
    self;

  # Adds attributes to a derivation without changing it. The paths of the outputs need `condition`:
  # nixpkgs refuses a package in this way and can still show its name.
  extendDerivation =
    condition: extra: drv:
    let
      common = drv // listToAttrs outputs // { all = map (output: output.value) outputs; } // extra;
      checked = output: {
        drvPath = assert condition; output.drvPath;
        outPath = assert condition; output.outPath;
      };
      own = output: { inherit (output) type outputName; outputSpecified = true; };
      outputs = map (name: { inherit name; value = common // checked drv.${name} // own drv.${name}; }) drv.outputs;
    in
    common // checked drv;
}
