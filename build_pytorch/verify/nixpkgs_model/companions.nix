# The part of python3Packages.torchvision and torchaudio that a recipe can read or change. Compiler,
# CUDA and GPU architectures are those of torch. The formals are exact, so that an unknown argument is
# the same error as in nixpkgs (read in its expressions of TorchVision 0.25.0 and TorchAudio 2.10.0).
# `setTorch` is the version of torch in the package set that a companion is taken from.
{ pin, setTorch }:
let
  versions = pin.companions or { };

  archList = lib: torch: lib.concatStringsSep ";" torch.cudaCapabilities;

  # Any other companion: what a package that is compiled against torch has at least.
  other =
    name: version:
    {
      lib,
      buildPythonPackage,
      fetchFromGitHub,
      setuptools,
      torch,
      cudaSupport ? torch.cudaSupport,
    }:
    buildPythonPackage.override { inherit (torch) stdenv; } {
      pname = name;
      inherit version;
      pyproject = true;
      src = fetchFromGitHub {
        owner = "pytorch";
        repo = name;
        tag = "v${version}";
        hash = lib.fakeHash;
      };
      env = lib.optionalAttrs cudaSupport { TORCH_CUDA_ARCH_LIST = archList lib torch; };
      build-system = [ setuptools ];
      buildInputs = [ torch.cxxdev ];
      dependencies = [ torch ];
      pythonImportsCheck = [ name ];
      passthru = { inherit setTorch; };
      meta = {
        description = "Stand-in for ${name} ${version}";
        license = lib.licenses.bsd3;
        platforms = lib.platforms.linux ++ lib.optionals (!cudaSupport) lib.platforms.darwin;
      };
    };
in
builtins.mapAttrs other (removeAttrs versions [ "triton" ])
// {
  torchvision =
    {
      lib,
      buildPythonPackage,
      fetchFromGitHub,
      runCommand,
      setuptools,
      torch,
      cudaSupport ? torch.cudaSupport,
      cudaPackages,
      libpng,
      ninja,
      which,
      libjpeg_turbo,
      numpy,
      pillow,
      scipy,
    }:
    buildPythonPackage.override { inherit (torch) stdenv; } rec {
      pname = "torchvision";
      version = versions.torchvision or "0";
      pyproject = true;
      src = fetchFromGitHub {
        owner = "pytorch";
        repo = "vision";
        tag = "v${version}";
        hash = lib.fakeHash;
      };
      env = lib.optionalAttrs cudaSupport { TORCH_CUDA_ARCH_LIST = archList lib torch; };
      build-system = [ setuptools ];
      nativeBuildInputs = [
        libpng
        ninja
        which
      ]
      ++ lib.optionals cudaSupport [ cudaPackages.cuda_nvcc ];
      buildInputs = [
        libjpeg_turbo
        libpng
        torch.cxxdev
      ];
      dependencies = [
        numpy
        pillow
        torch
        scipy
      ];
      preConfigure = ''
        export TORCHVISION_INCLUDE="${lib.getDev libjpeg_turbo}/include/"
        export TORCHVISION_LIBRARY="${lib.getLib libjpeg_turbo}/lib/"
      ''
      + lib.optionalString cudaSupport ''
        export FORCE_CUDA=1
      '';
      pythonImportsCheck = [ "torchvision" ];
      passthru = { inherit setTorch; };
      meta = {
        description = "Stand-in for TorchVision ${version}";
        license = lib.licenses.bsd3;
        platforms = lib.platforms.linux ++ lib.optionals (!cudaSupport) lib.platforms.darwin;
      };
    };

  torchaudio =
    {
      lib,
      buildPythonPackage,
      fetchFromGitHub,
      runCommand,
      setuptools,
      torch,
      cudaSupport ? torch.cudaSupport,
      cudaPackages,
      ffmpeg_6-full,
      sox,
      cmake,
      pkg-config,
      ninja,
      pybind11,
      gpuTargets ? [ ],
    }:
    buildPythonPackage.override { inherit (torch) stdenv; } rec {
      pname = "torchaudio";
      version = versions.torchaudio or "0";
      pyproject = true;
      src = fetchFromGitHub {
        owner = "pytorch";
        repo = "audio";
        tag = "v${version}";
        hash = lib.fakeHash;
      };
      # Made for the setup.py of this version.
      patches = [ (runCommand "0001-setup.py-propagate-cmakeFlags.patch" { } "") ];
      env = lib.optionalAttrs cudaSupport { TORCH_CUDA_ARCH_LIST = archList lib torch; };
      build-system = [ setuptools ];
      nativeBuildInputs = [
        cmake
        pkg-config
        ninja
      ]
      ++ lib.optionals cudaSupport [ cudaPackages.cuda_nvcc ];
      buildInputs = [
        ffmpeg_6-full
        pybind11
        sox
        torch.cxxdev
      ];
      dependencies = [ torch ];
      BUILD_SOX = 0;
      BUILD_KALDI = 0;
      BUILD_RNNT = 0;
      BUILD_CTC_DECODER = 0;
      dontUseCmakeConfigure = true;
      pythonImportsCheck = [ "torchaudio" ];
      passthru = { inherit setTorch; };
      meta = {
        description = "Stand-in for TorchAudio ${version}";
        license = lib.licenses.bsd2;
        platforms = lib.platforms.linux ++ lib.optionals (!cudaSupport) lib.platforms.darwin;
      };
    };
}
