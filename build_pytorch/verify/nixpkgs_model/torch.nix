# The part of python3Packages.torch that a recipe can read or change. The formals are those of nixpkgs,
# so that the same arguments are taken and an unknown one is the same error. Those that are null here
# change nothing in the model, but MPISupport.
#
# `newer`: the expression of PyTorch 2.13.0, with all variables in `env`; else that of 2.9.1.
{ pin, newer }:
{
  lib, stdenv, config, runCommand, buildPythonPackage, python,

  # Options.
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

  # Tools and libraries.
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
  inherit (lib) elem optional optionals optionalAttrs optionalString;
  setBool = value: if value then "1" else "0";
  patch = name: runCommand name { } "";

  ownStdenv = if cudaSupport then cudaPackages.backendStdenv else stdenv;
  # gpuTargets is not checked: `sm_120` fails only in the build.
  gpuTargetString = lib.concatStringsSep ";" (
    if gpuTargets != [ ] then gpuTargets else cudaPackages.flags.cudaCapabilities
  );
  # A torch that does not support its CUDA needs allowBroken.
  cudaMajors = [ "11" "12" ] ++ optional (newer || elem "torch-on-cuda-13" pin.has) "13";
  isOther = package: package.cudaPackages.cudaMajorMinorVersion != cudaPackages.cudaMajorMinorVersion;
  brokenConditions = lib.filterAttrs (_: broken: broken) {
    "CUDA and ROCm are mutually exclusive" = cudaSupport && rocmSupport;
    "Unsupported CUDA version" = cudaSupport && !(elem cudaPackages.cudaMajorVersion cudaMajors);
    "Magma cudaPackages does not match cudaPackages" = cudaSupport && isOther effectiveMagma;
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

  src = runCommand "pytorch-v${if newer then finalAttrs.version else pin.torch}-with-submodules" { } "";

  # For this version only: a recipe for another version must remove them.
  patches = [ (patch "patch-for-torch-${pin.torch}.patch") ]
    ++ optional cudaSupport (patch "fix-cmake-cuda-toolkit.patch")
    ++ optional (blas.implementation == "mkl") (patch "disable-cmake-mkl-rpath.patch");

  postPatch = ''
    substituteInPlace torch/_inductor/codecache.py \
      --replace-fail '"openssl"' '"${lib.getBin openssl}/bin/openssl"'
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

  # setup.py runs CMake with options from the environment, and ignores cmakeFlags without preBuild.
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
    ${optionalString newer ''export CMAKE_ARGS="''${cmakeFlags[*]}"''}
    ${python.interpreter} setup.py build --cmake-only
    ${lib.getBin cmake}/bin/cmake build
  '';

  env = { NIX_CFLAGS_COMPILE = "-Wno-error"; USE_VULKAN = setBool vulkanSupport; }
    // optionalAttrs newer (variables finalAttrs.version);

  build-system = [ setuptools ];
  nativeBuildInputs = [ cmake ninja which ]
    ++ optionals cudaSupport [ autoAddDriverRunpath cudaPackages.cuda_nvcc ];

  buildInputs = [ blas blas.provider ]
    ++ optional stdenv.hostPlatform.isLinux numactl
    ++ optionals cudaSupport (
      with cudaPackages;
      [
        (cudaPackages.cccl or cuda_cccl) cuda_cudart cuda_cupti cuda_nvcc cuda_nvml_dev cuda_nvrtc
        cuda_nvtx cuda_profiler_api cudnn libcublas libcufft libcufile libcurand libcusolver
        libcusparse libcusparse_lt
      ]
      ++ optional useSystemNccl nccl
    )
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
    # A derivation, not its name.
    blasProvider = blas.provider;
    # Of the torch in the package set.
    tests.cudaAvailable = runCommand "torch-cuda-available" { } "";
  };

  meta = {
    description = "Stand-in for PyTorch ${finalAttrs.version}";
    license = lib.licenses.bsd3;
    platforms = lib.platforms.linux ++ lib.optionals (!cudaSupport) lib.platforms.darwin;
    broken = brokenConditions != { };
  };
}
// (if newer then { __structuredAttrs = true; } else variables pin.torch))
