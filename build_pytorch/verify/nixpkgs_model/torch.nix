# The part of python3Packages.torch that a recipe can read or change. The formals are those of nixpkgs,
# so that the same arguments are taken and an unknown one is the same error. `newer`: that of PyTorch
# 2.13.0, with all variables in `env`; else that of 2.9.1.
{ pin, newer }:
{
  lib, stdenv, config, runCommand, buildPythonPackage, python,
  cudaSupport ? config.cudaSupport, cudaPackages,
  rocmSupport ? config.rocmSupport,
  gpuTargets ? [ ],
  # The MAGMA that a CUDA build links; `magma` is an argument and not linked.
  effectiveMagma ? if cudaSupport then magma-cuda-static else magma,
  magma, magma-cuda-static,
  useSystemNccl ? cudaSupport || rocmSupport,
  blas,
  tritonSupport ? !stdenv.hostPlatform.isDarwin, triton, triton-cuda,
  _tritonEffective ? if cudaSupport then triton-cuda else triton,
  autoAddDriverRunpath, cmake, ninja, numactl, numpy, openssl, packaging, setuptools, six,
  typing-extensions, which,
  # Options and libraries that no recipe of this project changes.
  MPISupport ? false, mpi ? null, buildDocs ? false, mklDnnSupport ? true, vulkanSupport ? false,
  apple-sdk_13 ? null, astunparse ? null, binutils ? null,
  callPackage ? null, expecttest ? null, fetchFromGitHub ? null, fetchFromGitLab ? null,
  filelock ? null, fsspec ? null, git-unroll ? null, hypothesis ? null, jinja2 ? null,
  llvmPackages ? null, magma-hip ? null, networkx ? null, pillow ? null,
  pkg-config ? null, protobuf ? null, psutil ? null, pybind11 ? null, pyyaml ? null,
  removeReferencesTo ? null, requests ? null, rocmPackages ? null, shaderc ? null, sympy ? null,
  symlinkJoin ? null, tensorboard ? null, types-dataclasses ? null, vulkan-headers ? null,
  vulkan-loader ? null, writeShellScript ? null,
}:
let
  inherit (lib) elem getBin getDev getLib optional optionals optionalAttrs optionalString;
  feature = lib.cmakeFeature;
  setBool = value: if value then "1" else "0";
  empty = name: runCommand name { } "";
  ownStdenv = if cudaSupport then cudaPackages.backendStdenv else stdenv;
  cudaVersion = cudaPackages.cudaMajorMinorVersion;
  # gpuTargets is not checked: `sm_120` fails only in the build.
  targets = if gpuTargets != [ ] then gpuTargets else cudaPackages.flags.cudaCapabilities;
  # A torch that does not support its CUDA needs allowBroken.
  cudaMajors = [ "11" "12" ] ++ optional (newer || elem "torch-on-cuda-13" pin.has) "13";
  brokenConditions = lib.filterAttrs (_: broken: broken) {
    "CUDA and ROCm are mutually exclusive" = cudaSupport && rocmSupport;
    "Unsupported CUDA version" = cudaSupport && !(elem cudaPackages.cudaMajorVersion cudaMajors);
    "Magma cudaPackages does not match cudaPackages" =
      cudaSupport && effectiveMagma.cudaPackages.cudaMajorMinorVersion != cudaVersion;
  };
  variables = version: {
    BUILD_DOCS = setBool buildDocs;
    CMAKE_GENERATOR = "Ninja";
    USE_MKLDNN = setBool mklDnnSupport;
    USE_MPI = setBool MPISupport;
    PYTORCH_BUILD_VERSION = version;
    PYTORCH_BUILD_NUMBER = 0;
    USE_NCCL = setBool useSystemNccl;
    USE_SYSTEM_NCCL = setBool useSystemNccl;
  };
in
buildPythonPackage.override { stdenv = ownStdenv; } (finalAttrs: {
  pname = "torch";
  version = pin.torch;
  pyproject = true;
  outputs = [ "out" "dev" "lib" "cxxdev" ];
  src = empty "pytorch-v${if newer then finalAttrs.version else pin.torch}-with-submodules";
  # For this version only: a recipe for another version must remove them.
  patches = [ (empty "patch-for-torch-${pin.torch}.patch") ]
    ++ optional cudaSupport (empty "fix-cmake-cuda-toolkit.patch")
    ++ optional (blas.implementation == "mkl") (empty "disable-cmake-mkl-rpath.patch");
  # CMake has a newer module of the name that is removed.
  postPatch = ''
    substituteInPlace torch/_inductor/codecache.py \
      --replace-fail '"openssl"' '"${getBin openssl}/bin/openssl"'
    ${optionalString cudaSupport "rm cmake/Modules/FindCUDAToolkit.cmake"}
  '';
  preConfigure = optionalString cudaSupport ''
    export TORCH_CUDA_ARCH_LIST="${lib.concatStringsSep ";" targets}"
    export CUPTI_INCLUDE_DIR=${getDev cudaPackages.cuda_cupti}/include
    export CUPTI_LIBRARY_DIR=${getLib cudaPackages.cuda_cupti}/lib
    export CUDNN_INCLUDE_DIR=${getLib cudaPackages.cudnn}/include
    export CUDNN_LIB_DIR=${getLib cudaPackages.cudnn}/lib
  '';
  # setup.py runs CMake with options from the environment, and ignores cmakeFlags without preBuild.
  dontUseCmakeConfigure = true;
  cmakeFlags = [ (feature "PYTHON_SIX_SOURCE_DIR" "${six}") (feature "CUDAToolkit_VERSION" cudaVersion) ]
    ++ optional cudaSupport (feature "CMAKE_CUDA_COMPILER_TOOLKIT_VERSION" cudaVersion);
  # Runs after preConfigure and replaces a MAX_JOBS from there.
  preBuild = ''
    export MAX_JOBS=$NIX_BUILD_CORES
    ${optionalString newer ''export CMAKE_ARGS="''${cmakeFlags[*]}"''}
    ${python.interpreter} setup.py build --cmake-only
    ${getBin cmake}/bin/cmake build
  '';
  env = { NIX_CFLAGS_COMPILE = "-Wno-error"; USE_VULKAN = setBool vulkanSupport; }
    // optionalAttrs newer (variables finalAttrs.version);
  build-system = [ setuptools ];
  nativeBuildInputs = [ cmake ninja which ]
    ++ optionals cudaSupport [ autoAddDriverRunpath cudaPackages.cuda_nvcc ];
  buildInputs = [ blas blas.provider ]
    ++ optional stdenv.hostPlatform.isLinux numactl
    ++ optionals cudaSupport (with cudaPackages; [
      (cudaPackages.cccl or cuda_cccl) cuda_cudart cuda_cupti cuda_nvcc cuda_nvml_dev cuda_nvrtc
      cuda_nvtx cuda_profiler_api cudnn libcublas libcufft libcufile libcurand libcusolver
      libcusparse libcusparse_lt
    ] ++ optional useSystemNccl nccl)
    ++ optional (cudaSupport || rocmSupport) effectiveMagma
    ++ optional tritonSupport _tritonEffective;
  dependencies = [ numpy packaging six typing-extensions ] ++ optional tritonSupport _tritonEffective;
  doCheck = false;
  pythonImportsCheck = [ "torch" ];
  requiredSystemFeatures = [ "big-parallel" ];
  passthru = {
    inherit brokenConditions cudaPackages cudaSupport gpuTargets rocmSupport;
    stdenv = ownStdenv;
    cudaCapabilities = if cudaSupport then cudaPackages.flags.cudaCapabilities else [ ];
    blasProvider = blas.provider; # a derivation, not its name
    tests.cudaAvailable = empty "torch-cuda-available"; # of the torch in the package set
  };
  meta = {
    description = "Stand-in for PyTorch ${finalAttrs.version}";
    license = lib.licenses.bsd3;
    platforms = lib.platforms.linux ++ optionals (!cudaSupport) lib.platforms.darwin;
    broken = brokenConditions != { };
  };
}
// (if newer then { __structuredAttrs = true; } else variables pin.torch))
