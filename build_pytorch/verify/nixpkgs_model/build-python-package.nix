# buildPythonPackage: its additions to mkDerivation for the packages of one interpreter.
{ lib, python }:
let
  inherit (lib) isFunction;

  # Consumed here and not attributes of the derivation: `old.dependencies` does not exist.
  consumed = [
    "build-system" "checkInputs" "dependencies" "disabled" "doCheck" "format" "nativeCheckInputs"
    "optional-dependencies" "pyproject" "stdenv"
  ];

  # Refuse an unsupported interpreter when the path of the package is evaluated. The condition is
  # read from passthru: a recipe that replaces passthru instead of extending it fails here.
  refuseDisabled =
    drv:
    let
      supported = drv.disabled -> throw "${drv.name} not supported for interpreter ${python.executable}";
    in
    lib.extendDerivation supported { } drv
    // { overrideAttrs = change: refuseDisabled (drv.overrideAttrs change); };

  buildWith =
    { stdenv }:
    attrsOrFunction:
    let
      attrsOf = if isFunction attrsOrFunction then attrsOrFunction else _: attrsOrFunction;
      overridePythonAttrs =
        change:
        buildWith { inherit stdenv; } (
          finalAttrs:
          let old = attrsOf finalAttrs; in old // (if isFunction change then change old else change)
        );

      package = stdenv.mkDerivation (
        finalAttrs:
        let
          attrs = attrsOf finalAttrs;
        in
        removeAttrs attrs consumed
        // {
          # From the final name and version: overrideAttrs can change both.
          name = attrs.name or "${python.libPrefix}-${finalAttrs.pname}-${finalAttrs.version}";
          outputs = attrs.outputs or [ "out" ] ++ [ "dist" ];
          nativeBuildInputs =
            [ python ] ++ attrs.build-system or [ ] ++ attrs.nativeBuildInputs or [ ];
          buildInputs = attrs.buildInputs or [ ];
          propagatedBuildInputs =
            attrs.propagatedBuildInputs or [ ] ++ attrs.dependencies or [ ] ++ [ python ];
          # Tests of Python packages run on the installed package.
          doCheck = false;
          doInstallCheck = attrs.doCheck or true;
          passthru = {
            disabled = attrs.disabled or false;
            inherit overridePythonAttrs;
          }
          // attrs.passthru or { };
          meta = { inherit (python.meta) platforms; } // attrs.meta or { };
        }
      );
    in
    refuseDisabled (
      package.overrideAttrs (old: { passthru = old.passthru // { pythonModule = python; }; })
    );
in
# A separate set of arguments, so that torch can choose another stdenv.
stdenv: lib.makeOverridable buildWith { inherit stdenv; }
