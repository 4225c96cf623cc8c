# pytorch-python313-cuda12_8-sm86-avx512bf16
#
# PyTorch 2.8.0 with CUDA 12.8 for SM86 GPUs (RTX 30 series, A40, A10, RTX A series)
# and CPUs with AVX-512 with BF16, on Python 3.13.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:42026efc4f17a58fa61f763a0e84a716b6cbd6122f2325da7cd3ce8707c46493

{ pkgs ? import <nixpkgs> {}

  # The one nixpkgs revision that every recipe of this release is built from. A caller that
  # evaluates many recipes may hand in one import for all that agree in system and overlays;
  # Flox never does.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    # Said outright, so that any machine can evaluate this recipe and hand the build to a
    # builder of that platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 12.8 for every package that asks for CUDA
      (final: prev: { cudaPackages = final.cudaPackages_12_8; })

    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # GPU: Ampere (RTX 30 series, A40, A10, RTX A series)
  # gpuTargets takes the dotted form; sm_NN evaluates as well and fails hours later.
  gpuArchNum = "86";
  gpuArchSM = "8.6";

  # CPU: AVX-512 with BF16 (Cooper Lake, Sapphire Rapids, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
in
# Two stages. The first changes what nixpkgs decides from (without it the result is a CPU-only
# PyTorch, whatever the second says); the second changes single attributes of that result.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch28-python313-cuda12_8-sm86-avx512bf16";

  # Read only where Ninja is called by Nix itself; the limit that counts is set in preConfigure.
  ninjaFlags = [ "-j32" ];

  # Keeps the build away from machines that are too small for it.
  requiredSystemFeatures = [ "big-parallel" ];

  # For whoever configures with CMake. PyTorch's setup.py runs CMake itself and reads the
  # environment instead, so preConfigure says the same once more where a variable exists.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
    "-DCUDA_VERSION=12.8"
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

    echo "PyTorch 2.8.0, CUDA 12.8, Python 3.13"
    echo "GPU:       SM${gpuArchNum} (${gpuArchSM})"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = gpuArchSM;
    cpuISA = "avx512bf16";
    blasProvider = "cublas";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.8.0 with CUDA 12.8 for SM86 (RTX 30 series, A40, A10, RTX A series) and AVX-512 with BF16";
    longDescription = ''
      GPU: SM86, compute capability 8.6 (Ampere)
      CPU: AVX-512 with BF16 (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512bf16 -mfma)
      CUDA: 12.8, with cuBLAS and MAGMA
      PyTorch: 2.8.0, Python 3.13
      Driver: NVIDIA 525.60.13 or newer
      Hardware: RTX 30 series, A40, A10, RTX A series on x86_64-linux, where the CPU has AVX-512 with BF16
    '';
    platforms = [ "x86_64-linux" ];
  };
})
