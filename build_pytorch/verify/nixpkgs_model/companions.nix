# The part of packages compiled against torch that a recipe can read or change, after TorchVision 0.25.0
# and TorchAudio 2.10.0 in nixpkgs. Compiler, CUDA and GPU architectures are those of torch. `setTorch`
# is the version of torch in the package set that a companion is taken from.
{ pin, setTorch }:
builtins.mapAttrs (
  pname: version:
  {
    lib, buildPythonPackage, fetchFromGitHub, runCommand, setuptools, numpy, ninja, cudaPackages, torch,
    cudaSupport ? torch.cudaSupport,
  }:
  let
    inherit (lib) concatStringsSep fakeHash licenses optional optionalAttrs optionalString platforms;
    # What a package has beside the attributes of every companion.
    own.torchvision.preConfigure = optionalString cudaSupport "export FORCE_CUDA=1\n";
    own.torchaudio = {
      patches = [ (runCommand "0001-setup.py-propagate-cmakeFlags.patch" { } "") ]; # of this version
      dontUseCmakeConfigure = true;
    };
  in
  buildPythonPackage.override { inherit (torch) stdenv; } (
    {
      inherit pname version;
      pyproject = true;
      src = fetchFromGitHub { owner = "pytorch"; repo = pname; tag = "v${version}"; hash = fakeHash; };
      env = optionalAttrs cudaSupport { TORCH_CUDA_ARCH_LIST = concatStringsSep ";" torch.cudaCapabilities; };
      build-system = [ setuptools ];
      nativeBuildInputs = [ ninja ] ++ optional cudaSupport cudaPackages.cuda_nvcc;
      buildInputs = [ torch.cxxdev ];
      dependencies = [ numpy torch ];
      pythonImportsCheck = [ pname ];
      passthru = { inherit setTorch; };
      meta.license = licenses.bsd3;
      meta.platforms = platforms.linux ++ (if cudaSupport then [ ] else platforms.darwin);
    }
    // own.${pname} or { }
  )
) ({ torchvision = "0"; torchaudio = "0"; } // removeAttrs (pin.companions or { }) [ "triton" ])
