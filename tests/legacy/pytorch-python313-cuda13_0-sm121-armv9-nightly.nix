# PyTorch nightly for DGX Spark (SM121), built from scratch
# Package name: pytorch-python313-cuda13_0-sm121-armv9-nightly

{ lib
, stdenv
, python3Packages
, fetchFromGitHub
, cudaPackages_13
, pkgs
}:

let
  gpuArchSM = "12.1";
  cpuFlags = [ "-march=armv9-a+sve2" ];
  magma = pkgs.magma.override { cudaPackages = cudaPackages_13; };
in
python3Packages.buildPythonPackage rec {
  pname = "pytorch-python313-cuda13_0-sm121-armv9-nightly";
  version = "2.9.0";

  src = fetchFromGitHub {
    owner = "pytorch";
    repo = "pytorch";
    rev = "main";
    hash = "";
    fetchSubmodules = true;
  };

  buildInputs = [ cudaPackages_13.cudatoolkit magma ];

  preConfigure = ''
    export TORCH_CUDA_ARCH_LIST="${gpuArchSM}"
    export CXXFLAGS="${lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
    export USE_CUDA=1
  '';

  meta = {
    description = "PyTorch nightly for DGX Spark (SM121)";
    platforms = [ "aarch64-linux" ];
  };
}
