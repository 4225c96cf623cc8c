# pytorch-python313-cuda12_8-sm89-armv8_2
#
# PyTorch 2.8.0 with CUDA 12.8 for SM89 GPUs (RTX 40 series, L4, L40, L40S, RTX Ada)
# and CPUs with ARMv8.2 with FP16 and dot product, on Python 3.13.
# Status impossible-host: no aarch64-linux machine has SM89: RTX 40 series, L4, L40, L40S, RTX Ada on x86_64-linux only.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:e73412f319b0d62d4495bc6209c4be6f65ae4dd5f6ad29302aacbd5c7039b295

{ pkgs ? import <nixpkgs> {}

  # The one nixpkgs revision that every recipe of this release is built from. A caller that
  # evaluates many recipes may hand in one import for all that agree in system and overlays;
  # Flox never does.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    # Said outright, so that any machine can evaluate this recipe and hand the build to a
    # builder of that platform.
    system = "aarch64-linux";

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

  # GPU: Ada Lovelace (RTX 40 series, L4, L40, L40S, RTX Ada)
  # gpuTargets takes the dotted form; sm_NN evaluates as well and fails hours later.
  gpuArchNum = "89";
  gpuArchSM = "8.9";

  # CPU: ARMv8.2 with FP16 and dot product (Neoverse N1 (Graviton2), Neoverse V1, Neoverse V2)
  cpuFlags = [ "-march=armv8.2-a+fp16+dotprod" ];
in
# Two stages. The first changes what nixpkgs decides from (without it the result is a CPU-only
# PyTorch, whatever the second says); the second changes single attributes of that result.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch28-python313-cuda12_8-sm89-armv8_2";

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
    cpuISA = "armv8_2";
    blasProvider = "cublas";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.8.0 with CUDA 12.8 for SM89 (RTX 40 series, L4, L40, L40S, RTX Ada) and ARMv8.2 with FP16 and dot product (no machine has that pair)";
    longDescription = ''
      GPU: SM89, compute capability 8.9 (Ada Lovelace)
      CPU: ARMv8.2 with FP16 and dot product (-march=armv8.2-a+fp16+dotprod)
      CUDA: 12.8, with cuBLAS and MAGMA
      PyTorch: 2.8.0, Python 3.13
      Driver: NVIDIA 525.60.13 or newer
      Hardware: no aarch64-linux machine has SM89: RTX 40 series, L4, L40, L40S, RTX Ada on x86_64-linux only
    '';
    platforms = [ "aarch64-linux" ];
  };
})
