# buildPythonPackage: its additions to mkDerivation for the packages of one interpreter.
{ lib, python }:
let
  # Consumed here and not attributes of the derivation: `old.dependencies` does not exist.
  consumed = [
    "build-system" "checkInputs" "dependencies" "doCheck" "format" "nativeCheckInputs"
    "optional-dependencies" "pyproject" "stdenv"
  ];

  buildWith =
    { stdenv }:
    attrsOrFunction:
    let
      attrsOf = if lib.isFunction attrsOrFunction then attrsOrFunction else _: attrsOrFunction;
    in
    stdenv.mkDerivation (
      finalAttrs:
      let
        attrs = attrsOf finalAttrs;
      in
      removeAttrs attrs consumed
      // {
        # From the final name and version: overrideAttrs can change both.
        name = attrs.name or "${python.libPrefix}-${finalAttrs.pname}-${finalAttrs.version}";
        outputs = attrs.outputs or [ "out" ] ++ [ "dist" ];
        nativeBuildInputs = [ python ] ++ attrs.build-system or [ ] ++ attrs.nativeBuildInputs or [ ];
        propagatedBuildInputs =
          attrs.propagatedBuildInputs or [ ] ++ attrs.dependencies or [ ] ++ [ python ];
        # Tests of Python packages run on the installed package.
        doCheck = false;
        doInstallCheck = attrs.doCheck or true;
        passthru = { pythonModule = python; } // attrs.passthru or { };
        meta = { inherit (python.meta) platforms; } // attrs.meta or { };
      }
    );
in
# A separate set of arguments, so that torch can choose another stdenv.
stdenv: lib.makeOverridable buildWith { inherit stdenv; }
