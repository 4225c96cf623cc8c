# pytorch-python314-cuda13_2-sm90-avx2
#
# PyTorch 2.13.0 with CUDA 13.2 for SM90 GPUs (H100, H200)
# and CPUs with AVX2, on Python 3.14.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:c2099bac3789262a8c851efb1c670d0f070d8bb5291d8e9a7aafe741f8fb0f04

{ pkgs ? import <nixpkgs> {}

  # The nixpkgs revision of all recipes of this release. A caller that evaluates many recipes can
  # pass one import to all recipes with the same system and overlays; Flox passes nothing.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/b4fd65b198c599cbe814fcb9f42d25d021595ec9.tar.gz";
    sha256 = "sha256-ilerN1WLSvF+HMjziC/Wv99J5y02maDH+6hZPwsORKg=";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 13.2 for every package that uses CUDA
      # nixpkgs compiles NCCL for a default list of architectures; this one is for one.
      (final: prev: {
        cudaPackages = final.cudaPackages_13_2.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "90"; in {
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
            "-DCMAKE_CUDA_ARCHITECTURES=90"
            "-DMIN_ARCH=900"
          ];
          env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
        });
      })
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # GPU: Hopper (H100, H200)
  # gpuTargets needs the dotted form; sm_NN evaluates as well, and the build fails hours later.
  gpuArchNum = "90";
  gpuArchSM = "9.0";

  # CPU: AVX2 (Haswell and newer, Zen and newer)
  cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
in
# Two stages. override changes the arguments of torch, from which nixpkgs chooses CUDA and its
# libraries; without it the result is a CPU-only PyTorch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch213-python314-cuda13_2-sm90-avx2";

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
    cpuISA = "avx2";
    blasProvider = "cublas";
    # Packages that are built with torch compile for these. torch's own list is that of nixpkgs.
    cudaCapabilities = [ gpuArchSM ];
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.13.0 with CUDA 13.2 for SM90 (H100, H200) and AVX2";
    longDescription = ''
      GPU: SM90, compute capability 9.0 (Hopper)
      CPU: AVX2 (-mavx2 -mfma -mf16c)
      CPUs: Haswell and newer, Zen and newer; not Ivy Bridge, Pentium and Celeron without AVX2
      CUDA: 13.2, with cuBLAS and MAGMA
      PyTorch: 2.13.0, Python 3.14
      Driver: NVIDIA 580.65.06 or newer
      Hardware: H100, H200 on x86_64-linux, where the CPU has AVX2
    '';
    platforms = [ "x86_64-linux" ];
    # nixpkgs marks torch as broken on a CUDA that its own version does not support. Its other
    # reasons still count.
    broken = lib.any lib.id (lib.attrValues (
      removeAttrs oldAttrs.passthru.brokenConditions [ "Unsupported CUDA version" ]
    ));
  };
})
