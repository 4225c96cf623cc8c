# The part of python3Packages.torchvision and torchaudio that a recipe can read or change. Compiler,
# CUDA and GPU architectures are those of torch. The formals are exact, so that an unknown argument is
# the same error as in nixpkgs (read in its expressions of TorchVision 0.25.0 and TorchAudio 2.10.0).
# `setTorch` is the version of torch in the package set that a companion is taken from.
{ pin, setTorch }:
let
  versions = pin.companions or { };

  # What both have in common, from their arguments and their own attributes.
  common =
    { lib, fetchFromGitHub, setuptools, torch, cudaSupport, ... }:
    { pname, repo, ... }@attrs:
    removeAttrs attrs [ "repo" ]
    // {
      version = versions.${pname} or "0";
      pyproject = true;
      src = fetchFromGitHub {
        owner = "pytorch";
        inherit repo;
        tag = "v${versions.${pname} or "0"}";
        hash = lib.fakeHash;
      };
      env = lib.optionalAttrs cudaSupport {
        TORCH_CUDA_ARCH_LIST = lib.concatStringsSep ";" torch.cudaCapabilities;
      };
      build-system = [ setuptools ];
      pythonImportsCheck = [ pname ];
      passthru = { inherit setTorch; };
      meta = {
        description = "Stand-in for ${pname} ${versions.${pname} or "0"}";
        license = lib.licenses.bsd3;
        platforms = lib.platforms.linux ++ lib.optionals (!cudaSupport) lib.platforms.darwin;
      };
    };

  # Any other companion: what a package that is compiled against torch has at least.
  other =
    name: _:
    { lib, buildPythonPackage, fetchFromGitHub, setuptools, torch, cudaSupport ? torch.cudaSupport }@args:
    buildPythonPackage.override { inherit (torch) stdenv; } (
      common (args // { inherit cudaSupport; }) {
        pname = name;
        repo = name;
        buildInputs = [ torch.cxxdev ];
        dependencies = [ torch ];
      }
    );
in
builtins.mapAttrs other (removeAttrs versions [ "triton" ])
// {
  torchvision =
    {
      lib, buildPythonPackage, fetchFromGitHub, runCommand, setuptools, torch,
      cudaSupport ? torch.cudaSupport, cudaPackages, libpng, ninja, which, libjpeg_turbo, numpy,
      pillow, scipy,
    }@args:
    buildPythonPackage.override { inherit (torch) stdenv; } (
      common (args // { inherit cudaSupport; }) {
        pname = "torchvision";
        repo = "vision";
        nativeBuildInputs = [ libpng ninja which ] ++ lib.optional cudaSupport cudaPackages.cuda_nvcc;
        buildInputs = [ libjpeg_turbo libpng torch.cxxdev ];
        dependencies = [ numpy pillow torch scipy ];
        preConfigure = ''
          export TORCHVISION_INCLUDE="${lib.getDev libjpeg_turbo}/include/"
          export TORCHVISION_LIBRARY="${lib.getLib libjpeg_turbo}/lib/"
        ''
        + lib.optionalString cudaSupport ''
          export FORCE_CUDA=1
        '';
      }
    );

  torchaudio =
    {
      lib, buildPythonPackage, fetchFromGitHub, runCommand, setuptools, torch,
      cudaSupport ? torch.cudaSupport, cudaPackages, ffmpeg_6-full, sox, cmake, pkg-config, ninja,
      pybind11, gpuTargets ? [ ],
    }@args:
    buildPythonPackage.override { inherit (torch) stdenv; } (
      common (args // { inherit cudaSupport; }) {
        pname = "torchaudio";
        repo = "audio";
        # Made for the setup.py of this version.
        patches = [ (runCommand "0001-setup.py-propagate-cmakeFlags.patch" { } "") ];
        nativeBuildInputs = [ cmake pkg-config ninja ] ++ lib.optional cudaSupport cudaPackages.cuda_nvcc;
        buildInputs = [ ffmpeg_6-full pybind11 sox torch.cxxdev ];
        dependencies = [ torch ];
        BUILD_SOX = 0;
        BUILD_KALDI = 0;
        BUILD_RNNT = 0;
        BUILD_CTC_DECODER = 0;
        dontUseCmakeConfigure = true;
      }
    );
}
