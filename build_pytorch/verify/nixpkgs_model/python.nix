# A Python interpreter and its packages: python313 and python313.pkgs, with their overrides.
{ pin, pythonVersion }:
{
  lib, callPackage, stdenv,
  # The interpreter after all overlays.
  self,
}:
let
  newer = pin.cccl or "" == "cccl";

  # buildPythonPackage consumes these, and they are no attributes: `old.dependencies` does not exist.
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
        name = attrs.name or "python${pythonVersion}-${finalAttrs.pname}-${finalAttrs.version}";
        outputs = attrs.outputs or [ "out" ] ++ [ "dist" ];
        nativeBuildInputs = [ self ] ++ attrs.build-system or [ ] ++ attrs.nativeBuildInputs or [ ];
        propagatedBuildInputs =
          attrs.propagatedBuildInputs or [ ] ++ attrs.dependencies or [ ] ++ [ self ];
        # Tests of Python packages run on the installed package.
        doCheck = false;
        doInstallCheck = attrs.doCheck or true;
        passthru = { pythonModule = self; } // attrs.passthru or { };
        meta = { inherit (self.meta) platforms; } // attrs.meta or { };
      }
    );

  packages =
    stdenv: final: _:
    # Packages of which only the name matters.
    lib.genAttrs [ "numpy" "packaging" "pyyaml" "setuptools" "six" "typing-extensions" "wheel" ] (
      pname:
      stdenv.mkDerivation { inherit pname; version = "0"; name = "python${pythonVersion}-${pname}-0"; }
    )
    // {
      python = self;

      # A separate set of arguments, so that torch can choose another stdenv.
      buildPythonPackage = lib.makeOverridable buildWith { inherit stdenv; };

      triton = final.callPackage (
        { config, buildPythonPackage, cudaPackages, cudaSupport ? config.cudaSupport }:
        buildPythonPackage {
          pname = "triton"; version = pin.companions.triton or "0";
          passthru = { inherit cudaPackages cudaSupport; };
        }
      ) { };
      triton-cuda = final.triton.override { cudaSupport = true; };

      # The attribute is torch: the set has no `pytorch`.
      torch = final.callPackage (import ./torch.nix { inherit pin newer; }) { };
    }
    // lib.mapAttrs (_: companion: final.callPackage companion { }) (
      import ./companions.nix { inherit pin; setTorch = final.torch.version; }
    );

  # The formals are the arguments of python3Packages.override. `overrides` replaces the value of an
  # earlier override.
  packageSet =
    { pkgs, stdenv, python, overrides }:
    lib.makeScope pkgs.newScope (lib.extends overrides (lib.extends (packages stdenv) (_: { })));
in
stdenv.mkDerivation {
  pname = "python3";
  version = "${pythonVersion}.0";
  passthru = {
    inherit pythonVersion;
    interpreter = "${self}/bin/python${pythonVersion}";
    pkgs = callPackage packageSet { overrides = _: _: { }; python = self; };
  };
  meta.platforms = lib.platforms.unix;
}
