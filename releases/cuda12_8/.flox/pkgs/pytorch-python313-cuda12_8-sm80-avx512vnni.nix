# pytorch-python313-cuda12_8-sm80-avx512vnni
#
# PyTorch 2.8.0 with CUDA 12.8 for SM80 GPUs (A100, A30)
# and CPUs with AVX-512 with VNNI, on Python 3.13.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:cfe40866c3901f6c57f5fc2a221326027a277b3700d4913ab687dfe8fb6e1b81

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
      (final: prev: { cudaPackages = final.cudaPackages_12_8; })
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # GPU: Ampere (A100, A30)
  # gpuTargets needs the dotted form; sm_NN evaluates as well, and the build fails hours later.
  gpuArchNum = "80";
  gpuArchSM = "8.0";

  # CPU: AVX-512 with VNNI (Cascade Lake, Ice Lake, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512vnni" "-mfma" ];
in
# Two stages. override changes the arguments of torch, from which nixpkgs chooses CUDA and its
# libraries; without it the result is a CPU-only PyTorch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch28-python313-cuda12_8-sm80-avx512vnni";

  # Only Ninja's own build phase reads this, and this build does not run it. preConfigure sets the
  # limit that takes effect.
  ninjaFlags = [ "-j32" ];

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

  # Only a build that Nix configures with CMake reads these. PyTorch's setup.py runs CMake itself
  # and reads environment variables, so preConfigure sets those that exist.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
    "-DCUDA_VERSION=12.8"
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

    echo "PyTorch 2.8.0, CUDA 12.8, Python 3.13"
    echo "GPU:       SM${gpuArchNum} (${gpuArchSM})"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = gpuArchSM;
    cpuISA = "avx512vnni";
    blasProvider = "cublas";
    # Packages that are built with torch compile for these. torch's own list is that of nixpkgs.
    cudaCapabilities = [ gpuArchSM ];
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.8.0 with CUDA 12.8 for SM80 (A100, A30) and AVX-512 with VNNI";
    longDescription = ''
      GPU: SM80, compute capability 8.0 (Ampere)
      CPU: AVX-512 with VNNI (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512vnni -mfma)
      CPUs: Cascade Lake, Ice Lake, Zen 4 and newer; not Skylake-SP
      CUDA: 12.8, with cuBLAS and MAGMA
      PyTorch: 2.8.0, Python 3.13
      Driver: NVIDIA 525.60.13 or newer
      Hardware: A100, A30 on x86_64-linux, where the CPU has AVX-512 with VNNI
    '';
    platforms = [ "x86_64-linux" ];
    # nixpkgs marks torch as broken on a CUDA that its own version does not support. Its other
    # reasons still count.
    broken = lib.any lib.id (lib.attrValues (
      removeAttrs oldAttrs.passthru.brokenConditions [ "Unsupported CUDA version" ]
    ));
  };
})
