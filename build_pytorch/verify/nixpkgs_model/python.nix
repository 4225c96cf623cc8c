# A Python interpreter and its packages: python313 and python313.pkgs, with their overrides.
{ pin, pythonVersion }:
{
  lib, callPackage, stdenv,
  self, # the interpreter after all overlays
}:
let
  # buildPythonPackage consumes these, and they are no attributes: `old.dependencies` does not exist.
  consumed = [
    "build-system" "checkInputs" "dependencies" "doCheck" "format" "nativeCheckInputs"
    "optional-dependencies" "pyproject" "stdenv"
  ];
  buildWith =
    { stdenv }:
    given:
    stdenv.mkDerivation (
      finalAttrs:
      let
        attrs = if lib.isFunction given then given finalAttrs else given;
      in
      removeAttrs attrs consumed
      // {
        # From the final name and version: overrideAttrs can change both.
        name = attrs.name or "python${pythonVersion}-${finalAttrs.pname}-${finalAttrs.version}";
        outputs = attrs.outputs or [ "out" ] ++ [ "dist" ];
        nativeBuildInputs = [ self ] ++ attrs.build-system or [ ] ++ attrs.nativeBuildInputs or [ ];
        propagatedBuildInputs =
          attrs.propagatedBuildInputs or [ ] ++ attrs.dependencies or [ ] ++ [ self ];
        doCheck = false; # tests of Python packages run on the installed package
        doInstallCheck = attrs.doCheck or true;
        passthru = { pythonModule = self; } // attrs.passthru or { };
        meta = { inherit (self.meta) platforms; } // attrs.meta or { };
      }
    );
  # Packages of which only the name matters.
  plain = pname: stdenv.mkDerivation { inherit pname; version = "0"; name = "python${pythonVersion}-${pname}-0"; };
  packages =
    stdenv: final: _:
    lib.genAttrs [ "numpy" "packaging" "pyyaml" "setuptools" "six" "typing-extensions" "wheel" ] plain
    // {
      python = self;
      # A separate set of arguments, so that torch can choose another stdenv.
      buildPythonPackage = lib.makeOverridable buildWith { inherit stdenv; };
      triton = final.callPackage ({ config, cudaPackages, cudaSupport ? config.cudaSupport }:
        final.buildPythonPackage {
          pname = "triton"; version = pin.companions.triton or "0";
          passthru = { inherit cudaPackages cudaSupport; };
        }) { };
      triton-cuda = final.triton.override { cudaSupport = true; };
      # The attribute is torch: the set has no `pytorch`.
      torch = final.callPackage (import ./torch.nix { inherit pin; newer = pin.cccl or "" == "cccl"; }) { };
    }
    // lib.mapAttrs (_: companion: final.callPackage companion { }) (
      import ./companions.nix { inherit pin; setTorch = final.torch.version; }
    );

  # The formals are the arguments of python3Packages.override.
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
    withPackages = f: stdenv.mkDerivation { name = "python3-env"; paths = f self.pkgs; };
  };
  meta.platforms = lib.platforms.unix;
}
