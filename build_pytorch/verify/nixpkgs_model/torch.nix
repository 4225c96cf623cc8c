# The part of python3Packages.torch that a recipe can read or change. The formals are exact, so that
# an unknown argument is the same error as in nixpkgs; of the libraries, only some are here.
{ pin }:
{
  lib, stdenv, config, fetchFromGitHub, runCommand, buildPythonPackage, python,

  # Options.
  cudaSupport ? config.cudaSupport, cudaPackages,
  rocmSupport ? config.rocmSupport,
  gpuTargets ? [ ],
  # The MAGMA that a CUDA build links; `magma` is an argument and not linked.
  effectiveMagma ? if cudaSupport then magma-cuda-static else magma,
  magma, magma-cuda-static,
  useSystemNccl ? cudaSupport || rocmSupport,
  MPISupport ? cudaSupport, mpi,
  buildDocs ? false,
  mklDnnSupport ? true, blas,
  tritonSupport ? !stdenv.hostPlatform.isDarwin, triton, triton-cuda,
  _tritonEffective ? if cudaSupport then triton-cuda else triton,
  vulkanSupport ? false,

  # Tools and libraries.
  autoAddDriverRunpath, cmake, ninja, numactl, openssl, pybind11, removeReferencesTo, which,
  filelock, fsspec, jinja2, networkx, numpy, packaging, pyyaml, requests, setuptools, six, sympy,
  typing-extensions,
}:
let
  inherit (lib) elem optional optionals optionalString;
  setBool = value: if value then "1" else "0";

  # Packages that are built with torch take it from there.
  ownStdenv = if cudaSupport then cudaPackages.backendStdenv else stdenv;

  # gpuTargets is not checked: `sm_120` fails only in the build.
  inherit (cudaPackages.flags) cudaCapabilities;
  gpuTargetString = lib.concatStringsSep ";" (
    if gpuTargets != [ ] then gpuTargets else cudaCapabilities
  );

  brokenConditions = lib.filterAttrs (_: broken: broken) {
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
buildPythonPackage.override { stdenv = ownStdenv; } rec {
  pname = "torch";
  version = pin.torch;
  pyproject = true;

  outputs = [ "out" "dev" "lib" "cxxdev" ];

  # Assembled from about sixty repositories, each with its own hash.
  src = runCommand "pytorch-v${pin.torch}-with-submodules" { } "";

  # For this version only: a recipe for another version must remove them.
  patches = [ (runCommand "patch-for-torch-${pin.torch}.patch" { } "") ]
    ++ optional (blas.implementation == "mkl") (runCommand "disable-cmake-mkl-rpath.patch" { } "");

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
    (lib.cmakeFeature "PYTHON_SIX_SOURCE_DIR" "${six}")
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

  BUILD_DOCS = setBool buildDocs;
  CMAKE_GENERATOR = "Ninja";
  USE_MKLDNN = setBool mklDnnSupport;
  PYTORCH_BUILD_VERSION = version;
  PYTORCH_BUILD_NUMBER = 0;
  USE_NCCL = setBool useSystemNccl;
  USE_SYSTEM_NCCL = USE_NCCL;

  env = { NIX_CFLAGS_COMPILE = "-Wno-error"; USE_VULKAN = setBool vulkanSupport; };

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
    filelock fsspec jinja2 networkx numpy packaging pyyaml requests six sympy typing-extensions
  ]
  ++ optional tritonSupport _tritonEffective;

  doCheck = false;
  pythonImportsCheck = [ "torch" ];
  requiredSystemFeatures = [ "big-parallel" ];

  passthru = {
    inherit brokenConditions cudaPackages cudaSupport gpuTargets rocmSupport;
    stdenv = ownStdenv;
    cudaCapabilities = if cudaSupport then cudaPackages.flags.cudaCapabilities else [ ];
    # A derivation, not its name.
    blasProvider = blas.provider;
  };

  meta = {
    description = "Stand-in for PyTorch ${version}";
    license = lib.licenses.bsd3;
    platforms = lib.platforms.linux ++ optionals (!cudaSupport) lib.platforms.darwin;
    broken = brokenConditions != { };
  };
}
