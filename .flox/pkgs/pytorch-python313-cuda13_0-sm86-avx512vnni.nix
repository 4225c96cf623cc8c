# pytorch-python313-cuda13_0-sm86-avx512vnni
#
# PyTorch 2.10.0 with CUDA 13.0 for SM86 GPUs (RTX 30 series, RTX 2050, A40, A16, A10, A2, RTX A series)
# and CPUs with AVX-512 with VNNI, on Python 3.13.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:f12c2b711482db1b74d4291af34848f6adc9c950d2eba3490d754ff8961dcaee

{ pkgs ? import <nixpkgs> {}

  # The one nixpkgs revision that every recipe of this release is built from. A caller that
  # evaluates many recipes may hand in one import for all that agree in system and overlays;
  # Flox never does.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/6a030d535719c5190187c4cec156f335e95e3211.tar.gz";
  }) {
    # Said outright, so that any machine can evaluate this recipe and hand the build to a
    # builder of that platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      allowBroken = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 13.0 for every package that asks for CUDA
      (final: prev: { cudaPackages = final.cudaPackages_13; })

      # Overlay 2: CUDA 13.0 dropped cudaDeviceProp.clockRate, which this MAGMA reads.
      # The static MAGMA that torch links is made from this one.
      (final: prev: {
        magma = prev.magma.overrideAttrs (oldAttrs: {
          patches = (oldAttrs.patches or []) ++ [
            (final.fetchpatch {
              name = "cuda-13.0-clockrate-fix.patch";
              url = "https://github.com/icl-utk-edu/magma/commit/235aefb7b064954fce09d035c69907ba8a87cbcd.patch";
              hash = "sha256-i9InbxD5HtfonB/GyF9nQhFmok3jZ73RxGcIciGBGvU=";
            })
          ];
        });
      })

      # Overlay 3: PyTorch 2.10.0 in place of the version that nixpkgs ships
      (final: prev: {
        python3Packages = prev.python3Packages.override {
          overrides = pfinal: pprev: {
            torch = pprev.torch.overrideAttrs (oldAttrs: {
              version = "2.10.0";
              src = prev.fetchFromGitHub {
                owner = "pytorch";
                repo = "pytorch";
                rev = "v2.10.0";
                hash = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ=";
                fetchSubmodules = true;
              };
              patches = [];
            });
          };
        };
      })
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;
  inherit (nixpkgs_pinned.cudaPackages) cuda_cccl;

  # GPU: Ampere (RTX 30 series, RTX 2050, A40, A16, A10, A2, RTX A series)
  # gpuTargets takes the dotted form; sm_NN evaluates as well and fails hours later.
  gpuArchNum = "86";
  gpuArchSM = "8.6";

  # CPU: AVX-512 with VNNI (Cascade Lake, Ice Lake, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512vnni" "-mfma" ];
in
# Two stages. The first changes what nixpkgs decides from (without it the result is a CPU-only
# PyTorch, whatever the second says); the second changes single attributes of that result.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch210-python313-cuda13_0-sm86-avx512vnni";

  # nixpkgs' patches are for the version it ships; said here as well as in the overlay.
  patches = [];

  # Read only where Ninja is called by Nix itself; the limit that counts is set in preConfigure.
  ninjaFlags = [ "-j32" ];

  # Keeps the build away from machines that are too small for it.
  requiredSystemFeatures = [ "big-parallel" ];

  # For whoever configures with CMake. PyTorch's setup.py runs CMake itself and reads the
  # environment instead, so preConfigure says the same once more where a variable exists.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
    "-DTORCH_BUILD_VERSION=2.10.0"
    "-DCMAKE_CUDA_FLAGS=-I/build/cccl-compat"
    "-DCUDA_VERSION=13.0"
  ];

  preConfigure = (oldAttrs.preConfigure or "") + ''

    # CPU instruction set
    export CXXFLAGS="${lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
    export CFLAGS="${lib.concatStringsSep " " cpuFlags} $CFLAGS"

    # Parallel compilation. nixpkgs sets MAX_JOBS from NIX_BUILD_CORES after this hook, so the
    # limit has to be put there as well; 0 stands for all cores.
    export MAX_JOBS=32
    cores=''${NIX_BUILD_CORES:-0}
    if [ "$cores" -eq 0 ]; then cores=$(nproc); fi
    export NIX_BUILD_CORES=$((cores < 32 ? cores : 32))

    # nixpkgs still exports the version it ships, and the headers compare with this one
    # (TORCH_FEATURE_VERSION against the version macros of the release).
    export PYTORCH_BUILD_VERSION=2.10.0
    echo "2.10.0" > version.txt

    # CUDA 13 includes <cccl/cuda/std/utility>, nixpkgs' package has include/cuda: give the
    # headers the place where they are looked for. CUDAFLAGS does what CMAKE_CUDA_FLAGS above asks.
    mkdir -p /build/cccl-compat/cccl
    for library in cuda cub thrust nv; do
      ln -sfn ${cuda_cccl}/include/$library /build/cccl-compat/cccl/$library
    done
    export CXXFLAGS="-I/build/cccl-compat $CXXFLAGS"
    export CFLAGS="-I/build/cccl-compat $CFLAGS"
    export CUDAFLAGS="-I/build/cccl-compat $CUDAFLAGS"

    echo "PyTorch 2.10.0, CUDA 13.0, Python 3.13"
    echo "GPU:       SM${gpuArchNum} (${gpuArchSM})"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  # nixpkgs removes this file, PyTorch installs it, and gloo looks CUDA up through it: put back
  # one that hands over to CMake's own module of the same name.
  postPatch = (oldAttrs.postPatch or "") + ''

    cat > cmake/Modules/FindCUDAToolkit.cmake <<'CMAKE'
    if(NOT CUDAToolkit_FOUND)
      set(_pytorch_module_path "''${CMAKE_MODULE_PATH}")
      list(REMOVE_ITEM CMAKE_MODULE_PATH "''${CMAKE_CURRENT_LIST_DIR}")
      include(FindCUDAToolkit)
      set(CMAKE_MODULE_PATH "''${_pytorch_module_path}")
    endif()
    CMAKE
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = gpuArchSM;
    cpuISA = "avx512vnni";
    blasProvider = "cublas";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.10.0 with CUDA 13.0 for SM86 (RTX 30 series, RTX 2050, A40, A16, A10, A2, RTX A series) and AVX-512 with VNNI";
    longDescription = ''
      GPU: SM86, compute capability 8.6 (Ampere)
      CPU: AVX-512 with VNNI (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512vnni -mfma)
      CUDA: 13.0, with cuBLAS and MAGMA
      PyTorch: 2.10.0, Python 3.13
      Driver: NVIDIA 580.65.06 or newer
      Hardware: RTX 30 series, RTX 2050, A40, A16, A10, A2, RTX A series on x86_64-linux, where the CPU has AVX-512 with VNNI
    '';
    platforms = [ "x86_64-linux" ];
  };
})
