# pytorch-python314-cuda13_2-sm103-armv9
#
# PyTorch 2.13.0 with CUDA 13.2 for SM103 GPUs (GB300)
# and CPUs with ARMv9 with SVE2, on Python 3.14.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:be8e7b5482f7ce61862c619a140b93f870b2d24f5310b736ae91d30d6ef91635

{ pkgs ? import <nixpkgs> {}

  # The nixpkgs revision of all recipes of this release. A caller that evaluates many recipes can
  # pass one import to all recipes with the same system and overlays; Flox passes nothing.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/b4fd65b198c599cbe814fcb9f42d25d021595ec9.tar.gz";
    sha256 = "sha256-ilerN1WLSvF+HMjziC/Wv99J5y02maDH+6hZPwsORKg=";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "aarch64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 13.2 for every package that uses CUDA
      # nixpkgs compiles NCCL for a default list of architectures; this one is for one.
      (final: prev: {
        cudaPackages = final.cudaPackages_13_2.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "103"; in {
            makeFlags = (oldAttrs.makeFlags or []) ++ [
              "NVCC_GENCODE=-gencode=arch=compute_${arch},code=sm_${arch}"
            ];
            env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
          });
        });
      })

      # Overlay 2: torch links a static MAGMA, which nixpkgs makes from this package.
      (final: prev: {
        magma = prev.magma.overrideAttrs (oldAttrs: {
          # For this architecture, as with NCCL; MAGMA writes 75 as 750.
          cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
            "-DCMAKE_CUDA_ARCHITECTURES=103"
            "-DMIN_ARCH=1030"
          ];
          env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
        });
      })
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # GPU: Blackwell Ultra (GB300)
  # gpuTargets needs the dotted form; sm_NN evaluates as well, and the build fails hours later.
  gpuArchNum = "103";
  gpuArchSM = "10.3";

  # CPU: ARMv9 with SVE2 (Neoverse N2, Neoverse V2 (Grace, Graviton4), Neoverse V3AE (Thor), Cortex-X925 (GB10))
  cpuFlags = [ "-march=armv9-a+sve2" ];
in
# Two stages. override changes the arguments of torch, from which nixpkgs chooses CUDA and its
# libraries; without it the result is a CPU-only PyTorch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch213-python314-cuda13_2-sm103-armv9";

  # Only Ninja's own build phase reads this, and this build does not run it. preConfigure sets the
  # limit that takes effect.
  ninjaFlags = [ "-j32" ];

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

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

    # device code that is compressed for size is a fifth smaller; drivers for CUDA 13 read it
    export NVCC_APPEND_FLAGS=-compress-mode=size

    echo "PyTorch 2.13.0, CUDA 13.2, Python 3.14"
    echo "GPU:       SM${gpuArchNum} (${gpuArchSM})"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = gpuArchSM;
    cpuISA = "armv9";
    blasProvider = "cublas";
    # Packages that are built with torch compile for these. torch's own list is that of nixpkgs.
    cudaCapabilities = [ gpuArchSM ];
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.13.0 with CUDA 13.2 for SM103 (GB300) and ARMv9 with SVE2";
    longDescription = ''
      GPU: SM103, compute capability 10.3 (Blackwell Ultra)
      CPU: ARMv9 with SVE2 (-march=armv9-a+sve2)
      CPUs: Neoverse N2, Neoverse V2 (Grace, Graviton4), Neoverse V3AE (Thor), Cortex-X925 (GB10); not Graviton3 (SVE without SVE2)
      CUDA: 13.2, with cuBLAS and MAGMA
      PyTorch: 2.13.0, Python 3.14
      Driver: NVIDIA 580.65.06 or newer
      Hardware: GB300 on aarch64-linux, where the CPU has ARMv9 with SVE2
    '';
    platforms = [ "aarch64-linux" ];
    # nixpkgs marks torch as broken on a CUDA that its own version does not support. Its other
    # reasons still count.
    broken = lib.any lib.id (lib.attrValues (
      removeAttrs oldAttrs.passthru.brokenConditions [ "Unsupported CUDA version" ]
    ));
  };
})
