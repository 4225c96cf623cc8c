# The part of python3Packages.torch that a recipe can read or change. The formals are exact, so that
# an unknown argument is the same error as in nixpkgs.
{ pin }:
{
  lib,
  stdenv,
  config,
  callPackage,
  fetchFromGitHub,
  fetchFromGitLab,
  runCommand,
  writeShellScript,
  symlinkJoin,
  buildPythonPackage,
  python,

  # Options.
  cudaSupport ? config.cudaSupport,
  cudaPackages,
  rocmSupport ? config.rocmSupport,
  rocmPackages ? { },
  gpuTargets ? [ ],
  # The MAGMA that a CUDA build links; `magma` is an argument and not linked.
  effectiveMagma ?
    if cudaSupport then
      magma-cuda-static
    else if rocmSupport then
      magma-hip
    else
      magma,
  magma,
  magma-hip,
  magma-cuda-static,
  useSystemNccl ? (cudaSupport && !cudaPackages.nccl.meta.unsupported) || rocmSupport,
  MPISupport ? cudaSupport,
  mpi,
  buildDocs ? false,
  mklDnnSupport ? true,
  blas,
  tritonSupport ? !stdenv.hostPlatform.isDarwin,
  triton,
  triton-cuda,
  _tritonEffective ? if cudaSupport then triton-cuda else triton,
  vulkanSupport ? false,
  vulkan-headers,
  vulkan-loader,
  shaderc,

  # Tools and libraries.
  autoAddDriverRunpath,
  cmake,
  git-unroll,
  ninja,
  numactl,
  openssl,
  pybind11,
  removeReferencesTo,
  which,

  # Python packages.
  astunparse,
  expecttest,
  filelock,
  fsspec,
  hypothesis,
  jinja2,
  networkx,
  packaging,
  pillow,
  protobuf,
  psutil,
  pyyaml,
  requests,
  setuptools,
  six,
  sympy,
  tensorboard,
  types-dataclasses,
  typing-extensions,
}:
let
  inherit (lib) optionals optionalString;
  setBool = value: if value then "1" else "0";

  inherit
    (import ./torch-targets.nix {
      inherit
        lib
        cudaPackages
        cudaSupport
        effectiveMagma
        gpuTargets
        pin
        rocmSupport
        ;
    })
    brokenConditions
    gpuTargetString
    supportedCapabilities
    ;
  # Packages that are built with torch take it from there.
  ownStdenv = if cudaSupport then cudaPackages.backendStdenv else stdenv;
  buildPackage = buildPythonPackage.override { stdenv = ownStdenv; };
in
# `rec` binds `version` to the value below: overrideAttrs does not change its uses.
buildPackage rec {
  pname = "torch";
  version = pin.torch;
  pyproject = true;

  outputs = [
    "out"
    "dev"
    "lib"
    "cxxdev"
  ];

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
  ++ optionals cudaSupport [
    (lib.cmakeFeature "CMAKE_CUDA_COMPILER_TOOLKIT_VERSION" cudaPackages.cudaMajorMinorVersion)
  ];

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

  nativeBuildInputs = [
    cmake
    which
    ninja
    pybind11
    removeReferencesTo
  ]
  ++ optionals cudaSupport [
    autoAddDriverRunpath
    cudaPackages.cuda_nvcc
  ];

  buildInputs = [
    blas
    blas.provider
  ]
  ++ optionals cudaSupport (
    with cudaPackages;
    [
      cuda_cccl
      cuda_cudart
      cuda_cupti
      cuda_nvcc
      cuda_nvml_dev
      cuda_nvrtc
      cuda_nvtx
      cuda_profiler_api
      cudnn
      libcublas
      libcufft
      libcufile
      libcurand
      libcusolver
      libcusparse
      libcusparse_lt
    ]
    ++ optionals useSystemNccl [ nccl ]
  )
  ++ optionals (cudaSupport || rocmSupport) [ effectiveMagma ]
  ++ optionals stdenv.hostPlatform.isLinux [ numactl ]
  ++ optionals tritonSupport [ _tritonEffective ]
  ++ optionals MPISupport [ mpi ];

  dependencies = [
    astunparse
    expecttest
    filelock
    fsspec
    hypothesis
    jinja2
    networkx
    ninja
    packaging
    pillow
    protobuf
    psutil
    pybind11
    pyyaml
    requests
    six
    sympy
    tensorboard
    types-dataclasses
    typing-extensions
  ]
  ++ optionals tritonSupport [ _tritonEffective ]
  ++ optionals vulkanSupport [
    vulkan-headers
    vulkan-loader
  ];

  doCheck = false;
  pythonImportsCheck = [ "torch" ];
  requiredSystemFeatures = [ "big-parallel" ];

  passthru = {
    inherit
      brokenConditions
      cudaPackages
      cudaSupport
      gpuTargets
      rocmPackages
      rocmSupport
      ;
    stdenv = ownStdenv;
    cudaCapabilities = if cudaSupport then supportedCapabilities else [ ];
    # A derivation, not its name.
    blasProvider = blas.provider;
  };

  meta = {
    changelog = "https://github.com/pytorch/pytorch/releases/tag/v${version}";
    description = "Stand-in for PyTorch ${version}";
    homepage = "https://pytorch.org/";
    license = lib.licenses.bsd3;
    platforms = lib.platforms.linux ++ optionals (!cudaSupport && !rocmSupport) lib.platforms.darwin;
    broken = brokenConditions != { };
  };
}
