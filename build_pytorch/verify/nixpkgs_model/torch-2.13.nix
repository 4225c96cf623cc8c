# As torch.nix, for the expression of PyTorch 2.13.0: all variables are in `env`, CMake gets cmakeFlags,
# and CUDA has `cccl`. Of its patches, those without CUDA are one.
{ pin }:
{
  lib, stdenv, config, runCommand, buildPythonPackage, python,

  # Options.
  cudaSupport ? config.cudaSupport, cudaPackages,
  rocmSupport ? config.rocmSupport,
  gpuTargets ? [ ],
  effectiveMagma ? if cudaSupport then magma-cuda-static.override { inherit cudaPackages; } else magma,
  magma, magma-cuda-static,
  useSystemNccl ? cudaSupport && cudaPackages.nccl.meta.available || rocmSupport,
  withNvshmem ? cudaSupport && cudaPackages.libnvshmem.meta.available,
  withTensorboard ? false,
  MPISupport ? false, mpi,
  buildDocs ? false,
  mklDnnSupport ? true, blas,
  tritonSupport ? !stdenv.hostPlatform.isDarwin, triton, triton-cuda,
  _tritonEffective ? if cudaSupport then triton-cuda.override { inherit cudaPackages; } else triton,
  vulkanSupport ? false,

  # Tools and libraries.
  autoAddDriverRunpath, cmake, ninja, numactl, openssl, pybind11, removeReferencesTo, which,
  filelock, fsspec, jinja2, networkx, numpy, packaging, pyyaml, requests, setuptools, six, sympy,
  typing-extensions,
}:
let
  inherit (lib) elem optional optionals optionalString;
  setBool = value: if value then "1" else "0";
  patch = name: runCommand name { } "";

  ownStdenv = if cudaSupport then cudaPackages.backendStdenv else stdenv;
  gpuTargetString = lib.concatStringsSep ";" (
    if gpuTargets != [ ] then gpuTargets else cudaPackages.flags.cudaCapabilities
  );
  isOther = package: package.cudaPackages.cudaMajorMinorVersion != cudaPackages.cudaMajorMinorVersion;

  brokenConditions = lib.filterAttrs (_: broken: broken) {
    "Unsupported CUDA version" = cudaSupport && !(elem cudaPackages.cudaMajorVersion [ "11" "12" "13" ]);
    "Magma cudaPackages does not match cudaPackages" = cudaSupport && isOther effectiveMagma;
    "Triton cudaPackages does not match cudaPackages" = cudaSupport && isOther _tritonEffective;
  };
in
buildPythonPackage.override { stdenv = ownStdenv; } (finalAttrs: {
  pname = "torch";
  version = pin.torch;
  pyproject = true;
  __structuredAttrs = true;

  outputs = [ "out" "dev" "lib" "cxxdev" ];

  src = runCommand "pytorch-v${finalAttrs.version}-with-submodules" { } "";

  patches = [ (patch "patch-for-torch-${pin.torch}.patch") ]
    ++ optionals cudaSupport (map patch [
      "fix-cmake-cuda-toolkit.patch" "forward-cupti-env-vars.patch"
      "avoid-duplicate-sm_103-codegen.patch"
    ])
    ++ optional (blas.implementation == "mkl") (patch "disable-cmake-mkl-rpath.patch");

  postPatch = ''
    substituteInPlace torch/_inductor/codecache.py \
      --replace-fail '"openssl"' '"${lib.getBin openssl}/bin/openssl"'
    sed -i -e "/from __future__ import/d" **.py
  ''
  + optionalString cudaSupport ''
    rm cmake/Modules/FindCUDAToolkit.cmake
  '';

  preConfigure = optionalString cudaSupport ''
    export TORCH_CUDA_ARCH_LIST="${gpuTargetString}"
    export CUDAToolkit_CUPTI_INCLUDE_DIR=${lib.getDev cudaPackages.cuda_cupti}/include
    export CUDA_cupti_LIBRARY=${lib.getLib cudaPackages.cuda_cupti}/lib/libcupti.so
    export CUDNN_INCLUDE_DIR=${lib.getDev cudaPackages.cudnn}/include
    export CUDNN_LIB_DIR=${lib.getLib cudaPackages.cudnn}/lib
  '';

  dontUseCmakeConfigure = true;

  env = {
    BUILD_DOCS = setBool buildDocs;
    CMAKE_GENERATOR = "Ninja";
    USE_MKLDNN = setBool mklDnnSupport;
    PYTORCH_BUILD_VERSION = finalAttrs.version;
    PYTORCH_BUILD_NUMBER = 0;
    USE_NCCL = setBool useSystemNccl;
    USE_SYSTEM_NCCL = finalAttrs.env.USE_NCCL;
    USE_NVSHMEM = setBool withNvshmem;
    NIX_CFLAGS_COMPILE = "-Wno-error";
    USE_VULKAN = setBool vulkanSupport;
  };

  cmakeFlags = [ (lib.cmakeFeature "PYTHON_SIX_SOURCE_DIR" "${six}") ]
    ++ optionals cudaSupport [
      (lib.cmakeFeature "CUDAToolkit_VERSION" cudaPackages.cudaMajorMinorVersion)
      (lib.cmakeFeature "CMAKE_CUDA_COMPILER_TOOLKIT_VERSION" cudaPackages.cudaMajorMinorVersion)
    ];

  # setup.py passes CMAKE_ARGS on to CMake.
  preBuild = ''
    export MAX_JOBS=$NIX_BUILD_CORES
    local torchCmakeFlags=()
    concatTo torchCmakeFlags cmakeFlags cmakeFlagsArray
    export CMAKE_ARGS="''${torchCmakeFlags[*]}''${CMAKE_ARGS:+ $CMAKE_ARGS}"
    ${python.interpreter} setup.py build --cmake-only
  '';

  build-system = [ cmake ninja numpy packaging pyyaml requests setuptools six typing-extensions ];
  nativeBuildInputs = [ which pybind11 removeReferencesTo ]
    ++ optionals cudaSupport [ autoAddDriverRunpath cudaPackages.cuda_nvcc ];

  buildInputs = [ blas blas.provider ]
    ++ optionals cudaSupport (
      with cudaPackages;
      [
        cccl cuda_cudart cuda_cupti cuda_nvml_dev cuda_nvrtc cuda_nvtx libcublas libcufft libcufile
        libcurand libcusolver libcusparse libcusparse_lt cudnn
      ]
      ++ optional useSystemNccl nccl
      ++ optional withNvshmem libnvshmem
      ++ [ cuda_profiler_api ]
    )
    ++ optional (cudaSupport || rocmSupport) effectiveMagma
    ++ optional stdenv.hostPlatform.isLinux numactl
    ++ optional tritonSupport _tritonEffective
    ++ optional MPISupport mpi;

  dependencies = [ filelock fsspec jinja2 networkx setuptools sympy typing-extensions pybind11 ]
    ++ optional tritonSupport _tritonEffective;

  doCheck = false;
  pythonImportsCheck = [ "torch" ];
  requiredSystemFeatures = [ "big-parallel" ];

  passthru = {
    inherit brokenConditions cudaPackages cudaSupport gpuTargetString rocmSupport;
    stdenv = ownStdenv;
    cudaCapabilities = if cudaSupport then cudaPackages.flags.cudaCapabilities else [ ];
    blasProvider = blas.provider;
    triton = _tritonEffective;
  };

  meta = {
    description = "Stand-in for PyTorch ${finalAttrs.version}";
    license = lib.licenses.bsd3;
    platforms = lib.platforms.linux ++ optionals (!cudaSupport) lib.platforms.darwin;
    broken = brokenConditions != { };
  };
})
