# pytorch-python313-cuda12_8-sm75-avx
#
# PyTorch 2.8.0 with CUDA 12.8 for SM75 GPUs (T4, RTX 20 series, GTX 16 series, Quadro RTX)
# and CPUs with AVX, on Python 3.13.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:c89ba3dc42e38458a2f7547c2ff82c765bba0d8a63e997affd8c26d3231908fc

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

  # GPU: Turing (T4, RTX 20 series, GTX 16 series, Quadro RTX)
  # gpuTargets takes the dotted form; sm_NN evaluates as well and fails hours later.
  gpuArchNum = "75";
  gpuArchSM = "7.5";

  # CPU: AVX (Sandy Bridge, Ivy Bridge (Xeon E5 v2))
  cpuFlags = [ "-mavx" "-mno-fma" "-mno-bmi" "-mno-bmi2" "-mno-avx2" ];
in
# Two stages. The first changes what nixpkgs decides from (without it the result is a CPU-only
# PyTorch, whatever the second says); the second changes single attributes of that result.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch28-python313-cuda12_8-sm75-avx";

  # Read only where Ninja is called by Nix itself; the limit that counts is set in preConfigure.
  ninjaFlags = [ "-j32" ];

  # Keeps the build away from machines that are too small for it.
  requiredSystemFeatures = [ "big-parallel" ];

  # For whoever configures with CMake. PyTorch's setup.py runs CMake itself and reads the
  # environment instead, so preConfigure says the same once more where a variable exists.
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

    # Parallel compilation. nixpkgs sets MAX_JOBS from NIX_BUILD_CORES after this hook, so the
    # limit has to be put there as well; 0 stands for all cores.
    export MAX_JOBS=32
    cores=''${NIX_BUILD_CORES:-0}
    if [ "$cores" -eq 0 ]; then cores=$(nproc); fi
    export NIX_BUILD_CORES=$((cores < 32 ? cores : 32))

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
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.8.0 with CUDA 12.8 for SM75 (T4, RTX 20 series, GTX 16 series, Quadro RTX) and AVX";
    longDescription = ''
      GPU: SM75, compute capability 7.5 (Turing)
      CPU: AVX (-mavx -mno-fma -mno-bmi -mno-bmi2 -mno-avx2)
      CUDA: 12.8, with cuBLAS and MAGMA
      PyTorch: 2.8.0, Python 3.13
      Driver: NVIDIA 525.60.13 or newer
      Hardware: T4, RTX 20 series, GTX 16 series, Quadro RTX on x86_64-linux, where the CPU has AVX
    '';
    platforms = [ "x86_64-linux" ];
  };
})
