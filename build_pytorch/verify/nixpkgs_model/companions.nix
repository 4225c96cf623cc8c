# The part of python3Packages.torchvision and torchaudio that a recipe can read or change. Compiler,
# CUDA and GPU architectures are those of torch. The formals are exact, so that an unknown argument is
# the same error as in nixpkgs (read in its expressions of TorchVision 0.25.0 and TorchAudio 2.10.0).
# `setTorch` is the version of torch in the package set that a companion is taken from.
{ pin, setTorch }:
let
  versions = pin.companions or { };

  # What all have in common, from their arguments and their own attributes.
  build =
    pname: repo:
    { lib, buildPythonPackage, fetchFromGitHub, setuptools, torch, cudaSupport ? torch.cudaSupport, ... }:
    attrs:
    buildPythonPackage.override { inherit (torch) stdenv; } (
      rec {
        inherit pname;
        version = versions.${pname} or "0";
        pyproject = true;
        src = fetchFromGitHub {
          owner = "pytorch";
          inherit repo;
          tag = "v${version}";
          hash = lib.fakeHash;
        };
        env = lib.optionalAttrs cudaSupport {
          TORCH_CUDA_ARCH_LIST = lib.concatStringsSep ";" torch.cudaCapabilities;
        };
        build-system = [ setuptools ];
        buildInputs = [ torch.cxxdev ];
        dependencies = [ torch ];
        pythonImportsCheck = [ pname ];
        passthru = { inherit setTorch; };
        meta.license = lib.licenses.bsd3;
        meta.platforms = lib.platforms.linux ++ lib.optionals (!cudaSupport) lib.platforms.darwin;
      }
      // attrs
    );

  # Any other companion: what a package that is compiled against torch has at least.
  other =
    name: _:
    { lib, buildPythonPackage, fetchFromGitHub, setuptools, torch, cudaSupport ? torch.cudaSupport }@args:
    build name name args { };
in
builtins.mapAttrs other (removeAttrs versions [ "triton" ])
// {
  torchvision =
    {
      lib, buildPythonPackage, fetchFromGitHub, setuptools, torch, cudaSupport ? torch.cudaSupport,
      cudaPackages, libpng, ninja, which, libjpeg_turbo, numpy, pillow,
    }@args:
    build "torchvision" "vision" args {
      nativeBuildInputs = [ libpng ninja which ] ++ lib.optional cudaSupport cudaPackages.cuda_nvcc;
      buildInputs = [ libjpeg_turbo libpng torch.cxxdev ];
      dependencies = [ numpy pillow torch ];
      preConfigure = ''
        export TORCHVISION_INCLUDE="${lib.getDev libjpeg_turbo}/include/"
        export TORCHVISION_LIBRARY="${lib.getLib libjpeg_turbo}/lib/"
      ''
      + lib.optionalString cudaSupport ''
        export FORCE_CUDA=1
      '';
    };

  torchaudio =
    {
      lib, buildPythonPackage, fetchFromGitHub, runCommand, setuptools, torch,
      cudaSupport ? torch.cudaSupport, cudaPackages, ffmpeg_6-full, sox, cmake, pkg-config, ninja,
      pybind11, gpuTargets ? [ ],
    }@args:
    build "torchaudio" "audio" args {
      # Made for the setup.py of this version.
      patches = [ (runCommand "0001-setup.py-propagate-cmakeFlags.patch" { } "") ];
      nativeBuildInputs = [ cmake pkg-config ninja ] ++ lib.optional cudaSupport cudaPackages.cuda_nvcc;
      buildInputs = [ ffmpeg_6-full pybind11 sox torch.cxxdev ];
      BUILD_SOX = 0;
      dontUseCmakeConfigure = true;
    };
}
