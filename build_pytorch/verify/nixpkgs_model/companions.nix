# The part of python3Packages.torchvision, torchaudio and other packages compiled against torch that a
# recipe can read or change. Compiler, CUDA and GPU architectures are those of torch; the hook, the
# patches and the flags are those of TorchVision 0.25.0 and TorchAudio 2.10.0 in nixpkgs. Of the other
# arguments and inputs, which no recipe changes, only some are here. `setTorch` is the version of torch
# in the package set that a companion is taken from.
{ pin, setTorch }:
let
  versions = removeAttrs (pin.companions or { }) [ "triton" ];

  # The function of a package, with what it has beside the attributes of every companion.
  companion =
    pname: attrsOf:
    {
      lib, buildPythonPackage, fetchFromGitHub, runCommand, setuptools, numpy, ninja, cudaPackages, torch,
      cudaSupport ? torch.cudaSupport,
    }:
    buildPythonPackage.override { inherit (torch) stdenv; } (
      rec {
        inherit pname;
        version = versions.${pname} or "0";
        pyproject = true;
        src = fetchFromGitHub {
          owner = "pytorch";
          repo = pname;
          tag = "v${version}";
          hash = lib.fakeHash;
        };
        env = lib.optionalAttrs cudaSupport {
          TORCH_CUDA_ARCH_LIST = lib.concatStringsSep ";" torch.cudaCapabilities;
        };
        build-system = [ setuptools ];
        nativeBuildInputs = [ ninja ] ++ lib.optional cudaSupport cudaPackages.cuda_nvcc;
        buildInputs = [ torch.cxxdev ];
        dependencies = [ numpy torch ];
        pythonImportsCheck = [ pname ];
        passthru = { inherit setTorch; };
        meta.license = lib.licenses.bsd3;
        meta.platforms = lib.platforms.linux ++ lib.optionals (!cudaSupport) lib.platforms.darwin;
      }
      // attrsOf { inherit lib cudaSupport runCommand; }
    );
in
builtins.mapAttrs (name: _: companion name (_: { })) versions
// {
  torchvision = companion "torchvision" ({ lib, cudaSupport, ... }: {
    preConfigure = lib.optionalString cudaSupport ''
      export FORCE_CUDA=1
    '';
  });
  torchaudio = companion "torchaudio" ({ runCommand, ... }: {
    # Made for the setup.py of this version.
    patches = [ (runCommand "0001-setup.py-propagate-cmakeFlags.patch" { } "") ];
    dontUseCmakeConfigure = true;
  });
}
