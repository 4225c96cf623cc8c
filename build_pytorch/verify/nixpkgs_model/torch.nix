# The part of python3Packages.torch that a recipe can read or change. The formals are exact, so that
# an unknown argument is the same error as in nixpkgs.
{ pin }:
{
  lib, stdenv, config, callPackage, fetchFromGitHub, fetchFromGitLab, runCommand, writeShellScript,
  symlinkJoin, buildPythonPackage, python,

  # Options.
  cudaSupport ? config.cudaSupport, cudaPackages,
  rocmSupport ? config.rocmSupport, rocmPackages ? { },
  gpuTargets ? [ ],
  # The MAGMA that a CUDA build links; `magma` is an argument and not linked.
  effectiveMagma ?
    if cudaSupport then magma-cuda-static else if rocmSupport then magma-hip else magma,
  magma, magma-hip, magma-cuda-static,
  useSystemNccl ? (cudaSupport && !cudaPackages.nccl.meta.unsupported) || rocmSupport,
  MPISupport ? cudaSupport, mpi,
  buildDocs ? false,
  mklDnnSupport ? true, blas,
  tritonSupport ? !stdenv.hostPlatform.isDarwin, triton, triton-cuda,
  _tritonEffective ? if cudaSupport then triton-cuda else triton,
  vulkanSupport ? false, vulkan-headers, vulkan-loader, shaderc,

  # Tools and libraries.
  autoAddDriverRunpath, cmake, git-unroll, ninja, numactl, openssl, pybind11, removeReferencesTo,
  which,

  # Python packages.
  astunparse, expecttest, filelock, fsspec, hypothesis, jinja2, networkx, packaging, pillow, protobuf,
  psutil, pyyaml, requests, setuptools, six, sympy, tensorboard, types-dataclasses, typing-extensions,
}:
let
  inherit (lib) elem optional optionals optionalString;
  setBool = value: if value then "1" else "0";

  # Packages that are built with torch take it from there.
  ownStdenv = if cudaSupport then cudaPackages.backendStdenv else stdenv;
  buildPackage = buildPythonPackage.override { stdenv = ownStdenv; };

  # The capabilities that the build script of torch supports.
  torchCapabilities = [
    "7.5" "8.0" "8.6" "8.7" "8.9" "9.0" "9.0a" "10.0" "10.0a" "10.1" "10.3" "11.0" "12.0" "12.0a"
    "12.1"
  ];
  inherit (cudaPackages.flags) cudaCapabilities;
  supportedCapabilities = lib.intersectLists torchCapabilities cudaCapabilities;

  # gpuTargets is not checked: `sm_120` fails only in the build.
  gpuTargetString = lib.concatStringsSep ";" (
    if gpuTargets != [ ] then
      gpuTargets
    else
      lib.throwIf (supportedCapabilities == [ ])
        "No supported GPU targets specified. Requested GPU targets: ${toString cudaCapabilities}"
        supportedCapabilities
  );

  brokenConditions = lib.filterAttrs (_: broken: broken) {
    "CUDA and ROCm are mutually exclusive" = cudaSupport && rocmSupport;
    # A torch that does not support CUDA 13 needs allowBroken.
    "Unsupported CUDA version" =
      cudaSupport
      && !(elem "torch-on-cuda-13" pin.has)
      && !(elem cudaPackages.cudaMajorVersion [ "11" "12" ]);
    "Magma cudaPackages does not match cudaPackages" =
      cudaSupport
      && effectiveMagma.cudaPackages.cudaMajorMinorVersion != cudaPackages.cudaMajorMinorVersion;
  };
in
# `rec` binds `version` to the value below: overrideAttrs does not change its uses.
buildPackage rec {
  pname = "torch";
  version = pin.torch;
  pyproject = true;

  outputs = [ "out" "dev" "lib" "cxxdev" ];

  # Assembled from about sixty repositories, each with its own hash.
  src = runCommand "pytorch-v${pin.torch}-with-submodules" { } "";

  # For this version only: a recipe for another version must remove them.
  patches = [ (runCommand "patch-for-torch-${pin.torch}.patch" { } "") ];

  postPatch = ''
    substituteInPlace torch/_inductor/codecache.py \
      --replace-fail '"openssl"' '"${lib.getBin openssl}/bin/openssl"'
    sed -i -e "/from __future__ import/d" **.py
  ''
  # CMake has a newer module of this name.
  + optionalString cudaSupport ''
    rm cmake/Modules/FindCUDAToolkit.cmake
  '';

  preConfigure = optionalString cudaSupport ''
    export TORCH_CUDA_ARCH_LIST="${gpuTargetString}"
    export CUPTI_INCLUDE_DIR=${lib.getDev cudaPackages.cuda_cupti}/include
    export CUPTI_LIBRARY_DIR=${lib.getLib cudaPackages.cuda_cupti}/lib
    export CUDNN_INCLUDE_DIR=${lib.getLib cudaPackages.cudnn}/include
    export CUDNN_LIB_DIR=${lib.getLib cudaPackages.cudnn}/lib
  '';

  # setup.py runs CMake with options from the environment and ignores cmakeFlags.
  dontUseCmakeConfigure = true;

  cmakeFlags = [
    (lib.cmakeFeature "PYTHON_SIX_SOURCE_DIR" "${six.src or six}")
    (lib.cmakeFeature "CUDAToolkit_VERSION" cudaPackages.cudaMajorMinorVersion)
  ]
  ++ optional cudaSupport (
    lib.cmakeFeature "CMAKE_CUDA_COMPILER_TOOLKIT_VERSION" cudaPackages.cudaMajorMinorVersion
  );

  # Runs after preConfigure and replaces a MAX_JOBS from there.
  preBuild = ''
    export MAX_JOBS=$NIX_BUILD_CORES
    ${python.interpreter} setup.py build --cmake-only
    ${lib.getBin cmake}/bin/cmake build
  '';

  BUILD_NAMEDTENSOR = setBool true;
  BUILD_DOCS = setBool buildDocs;
  BUILD_TEST = setBool false;
  CMAKE_GENERATOR = "Ninja";
  USE_MKLDNN = setBool mklDnnSupport;
  USE_MKLDNN_CBLAS = setBool mklDnnSupport;
  USE_SYSTEM_PYBIND11 = true;
  USE_NNPACK = 1;
  USE_DISTRIBUTED = setBool true;
  PYTORCH_BUILD_VERSION = version;
  PYTORCH_BUILD_NUMBER = 0;
  USE_NCCL = setBool useSystemNccl;
  USE_SYSTEM_NCCL = USE_NCCL;
  USE_STATIC_NCCL = USE_NCCL;

  env = {
    NIX_CFLAGS_COMPILE = "-Wno-error";
    USE_VULKAN = setBool vulkanSupport;
  };

  build-system = [ setuptools ];
  nativeBuildInputs = [ cmake which ninja pybind11 removeReferencesTo ]
    ++ optionals cudaSupport [ autoAddDriverRunpath cudaPackages.cuda_nvcc ];

  buildInputs = [ blas blas.provider ]
    ++ optionals cudaSupport (
      with cudaPackages;
      [
        cuda_cccl cuda_cudart cuda_cupti cuda_nvcc cuda_nvml_dev cuda_nvrtc cuda_nvtx
        cuda_profiler_api cudnn libcublas libcufft libcufile libcurand libcusolver libcusparse
        libcusparse_lt
      ]
      ++ optional useSystemNccl nccl
    )
    ++ optional (cudaSupport || rocmSupport) effectiveMagma
    ++ optional stdenv.hostPlatform.isLinux numactl
    ++ optional tritonSupport _tritonEffective
    ++ optional MPISupport mpi;

  dependencies = [
    astunparse expecttest filelock fsspec hypothesis jinja2 networkx ninja packaging pillow protobuf
    psutil pybind11 pyyaml requests six sympy tensorboard types-dataclasses typing-extensions
  ]
  ++ optional tritonSupport _tritonEffective
  ++ optionals vulkanSupport [ vulkan-headers vulkan-loader ];

  doCheck = false;
  pythonImportsCheck = [ "torch" ];
  requiredSystemFeatures = [ "big-parallel" ];

  passthru = {
    inherit brokenConditions cudaPackages cudaSupport gpuTargets rocmPackages rocmSupport;
    stdenv = ownStdenv;
    cudaCapabilities = if cudaSupport then supportedCapabilities else [ ];
    # A derivation, not its name.
    blasProvider = blas.provider;
  };

  meta = {
    description = "Stand-in for PyTorch ${version}";
    homepage = "https://pytorch.org/";
    license = lib.licenses.bsd3;
    platforms = lib.platforms.linux ++ optionals (!cudaSupport && !rocmSupport) lib.platforms.darwin;
    broken = brokenConditions != { };
  };
}
