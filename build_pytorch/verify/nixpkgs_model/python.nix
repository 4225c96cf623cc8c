# A Python interpreter and its packages: python313 and python313.pkgs, with their overrides.
{ pin, pythonVersion }:
{
  lib, callPackage, stdenv,
  # The interpreter after all overlays.
  self,
}:
let
  newer = pin.cccl or "" == "cccl";
  packages =
    stdenv: final: _:
    let
      standIns = (import ./stand-ins.nix).${stdenv.system};
    in
    (standIns.byVersion.${pythonVersion} or (standIns.pythonOf pythonVersion))
    // {
      python = self;

      buildPythonPackage = import ./build-python-package.nix { inherit lib; python = self; } stdenv;

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
    // builtins.mapAttrs (_: companion: final.callPackage companion { }) (
      import ./companions.nix { inherit pin; setTorch = final.torch.version; }
    );

  # The formals are the arguments of python3Packages.override. `overrides` replaces the value of an
  # earlier override.
  packageSet =
    { pkgs, stdenv, python, overrides }:
    lib.makeScope pkgs.newScope (
      lib.extends overrides (lib.extends (packages stdenv) (_: { }))
    );
in
stdenv.mkDerivation {
  pname = "python3";
  version = "${pythonVersion}.0";
  passthru = rec {
    inherit pythonVersion;
    libPrefix = "python${pythonVersion}";
    interpreter = "${self}/bin/${libPrefix}";
    pkgs = callPackage packageSet { overrides = _: _: { }; python = self; };
  };
  meta.platforms = lib.platforms.unix;
}
