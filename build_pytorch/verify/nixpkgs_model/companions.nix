# The part of python3Packages.torchvision, torchaudio and other packages compiled against torch that a
# recipe can read or change. Compiler, CUDA and GPU architectures are those of torch; the hook, the
# patches and the flags are those of TorchVision 0.25.0 and TorchAudio 2.10.0 in nixpkgs. Of the other
# arguments and inputs, which no recipe changes, only some are here. `setTorch` is the version of torch
# in the package set that a companion is taken from.
{ pin, setTorch }:
let
  # What a package has beside the attributes of every companion.
  own = { lib, cudaSupport, runCommand }: {
    torchvision.preConfigure = lib.optionalString cudaSupport ''
      export FORCE_CUDA=1
    '';
    # Made for the setup.py of this version.
    torchaudio.patches = [ (runCommand "0001-setup.py-propagate-cmakeFlags.patch" { } "") ];
    torchaudio.dontUseCmakeConfigure = true;
  };
in
builtins.mapAttrs (
  pname: version:
  {
    lib, buildPythonPackage, fetchFromGitHub, runCommand, setuptools, numpy, ninja, cudaPackages, torch,
    cudaSupport ? torch.cudaSupport,
  }:
  buildPythonPackage.override { inherit (torch) stdenv; } (
    {
      inherit pname version;
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
    // (own { inherit lib cudaSupport runCommand; }).${pname} or { }
  )
) ({ torchvision = "0"; torchaudio = "0"; } // removeAttrs (pin.companions or { }) [ "triton" ])
