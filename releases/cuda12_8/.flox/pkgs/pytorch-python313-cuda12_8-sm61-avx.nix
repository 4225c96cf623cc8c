# pytorch-python313-cuda12_8-sm61-avx
#
# PyTorch 2.8.0 with CUDA 12.8 for SM61 GPUs (GTX 10 series, P40, P4, Titan Xp)
# and CPUs with AVX, on Python 3.13.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:7a624bba83f23d0655718cb02df6d2df12cc5635a08a90b1bd64701c5f9f90a8

{ pkgs ? import <nixpkgs> {}

  # The nixpkgs revision of all recipes of this release. A caller that evaluates many recipes can
  # pass one import to all recipes with the same system and overlays; Flox passes nothing.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 12.8 for every package that uses CUDA
      # nixpkgs compiles NCCL for a default list of architectures; this one is for one.
      (final: prev: {
        cudaPackages = final.cudaPackages_12_8.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "61"; in {
            makeFlags = (oldAttrs.makeFlags or []) ++ [
              "NVCC_GENCODE=-gencode=arch=compute_${arch},code=sm_${arch}"
            ];
          });
        });
      })

      # Overlay 2: torch links a static MAGMA, which nixpkgs makes from this package.
      (final: prev: {
        magma = prev.magma.overrideAttrs (oldAttrs: {
          # For this architecture, as with NCCL; MAGMA writes 75 as 750.
          cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
            "-DCMAKE_CUDA_ARCHITECTURES=61"
            "-DMIN_ARCH=610"
          ];
        });
      })
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # GPU: Pascal (GTX 10 series, P40, P4, Titan Xp)
  # gpuTargets needs the dotted form; sm_NN evaluates as well, and the build fails hours later.
  gpuArchNum = "61";
  gpuArchSM = "6.1";

  # CPU: AVX (Sandy Bridge, Ivy Bridge (Xeon E5 v2))
  cpuFlags = [ "-mavx" "-mno-fma" "-mno-bmi" "-mno-bmi2" "-mno-avx2" ];
in
# Two stages. override changes the arguments of torch, from which nixpkgs chooses CUDA and its
# libraries; without it the result is a CPU-only PyTorch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch28-python313-cuda12_8-sm61-avx";

  # Only Ninja's own build phase reads this, and this build does not run it. preConfigure sets the
  # limit that takes effect.
  ninjaFlags = [ "-j32" ];

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

  # Only a build that Nix configures with CMake reads these. PyTorch's setup.py runs CMake itself
  # and reads environment variables, so preConfigure sets those that exist.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
    "-DCUDA_VERSION=12.8"
    "-DCXX_AVX2_FOUND=FALSE"
    "-DC_AVX2_FOUND=FALSE"
    "-DCXX_AVX512_FOUND=FALSE"
    "-DC_AVX512_FOUND=FALSE"
    "-DCAFFE2_COMPILER_SUPPORTS_AVX512_EXTENSIONS=OFF"
  ];

  preConfigure = (oldAttrs.preConfigure or "") + ''

    # CPU instruction set
    export CXXFLAGS="${lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
    export CFLAGS="${lib.concatStringsSep " " cpuFlags} $CFLAGS"

    # Limit of parallel compile jobs. nixpkgs sets MAX_JOBS to NIX_BUILD_CORES after this hook, so
    # NIX_BUILD_CORES is limited as well; 0 means all cores. PyTorch prefers MAX_JOBS to
    # CMAKE_BUILD_PARALLEL_LEVEL; without either, Ninja uses all cores.
    export MAX_JOBS=32
    cores=''${NIX_BUILD_CORES:-0}
    if [ "$cores" -eq 0 ]; then cores=$(nproc); fi
    export NIX_BUILD_CORES=$((cores < 32 ? cores : 32))

    # Nix runs builds on a pseudo-terminal, where Ninja writes its steps over each other; Nix drops
    # such lines. So the log has each step in a line.
    export TERM=dumb

    # cuDNN 9.11 and newer has no code for GPUs below 7.5, and nixpkgs has a newer one
    export USE_CUDNN=0
    # FBGEMM and NNPACK need AVX2, and oneDNN is compiled with AVX2 and AVX-512 code
    export USE_FBGEMM=0
    export USE_MKLDNN=0
    export USE_MKLDNN_CBLAS=0
    export USE_NNPACK=0

    echo "PyTorch 2.8.0, CUDA 12.8, Python 3.13"
    echo "GPU:       SM${gpuArchNum} (${gpuArchSM})"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = gpuArchSM;
    cpuISA = "avx";
    blasProvider = "cublas";
    # Packages that are built with torch compile for these. torch's own list is that of nixpkgs.
    cudaCapabilities = [ gpuArchSM ];
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.8.0 with CUDA 12.8 for SM61 (GTX 10 series, P40, P4, Titan Xp) and AVX";
    longDescription = ''
      GPU: SM61, compute capability 6.1 (Pascal)
      CPU: AVX (-mavx -mno-fma -mno-bmi -mno-bmi2 -mno-avx2)
      CPUs: Sandy Bridge, Ivy Bridge (Xeon E5 v2); not Nehalem, Pentium and Celeron before Ice Lake
      CUDA: 12.8, with cuBLAS and MAGMA
      PyTorch: 2.8.0, Python 3.13
      Driver: NVIDIA 525.60.13 or newer
      Hardware: GTX 10 series, P40, P4, Titan Xp on x86_64-linux, where the CPU has AVX
    '';
    platforms = [ "x86_64-linux" ];
    # nixpkgs marks torch as broken on a CUDA that its own version does not support. Its other
    # reasons still count.
    broken = lib.any lib.id (lib.attrValues (
      removeAttrs oldAttrs.passthru.brokenConditions [ "Unsupported CUDA version" ]
    ));
  };
})
