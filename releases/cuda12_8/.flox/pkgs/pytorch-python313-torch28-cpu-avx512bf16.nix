# pytorch-python313-torch28-cpu-avx512bf16
#
# PyTorch 2.8.0 without CUDA for CPUs with AVX-512 with BF16, on Python 3.13.
#
# Generated from matrix.toml by templates/cpu.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:85bfbde799e23d44ea1c4e3bcfd4d1306625b6a65abac28ac3045920f6e3391b

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
    };

    overlays = [
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: AVX-512 with BF16 (Cooper Lake, Sapphire Rapids, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
in
# Two stages: override changes the arguments of torch, overrideAttrs single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = false;
}).overrideAttrs (oldAttrs: {
  pname = "pytorch28-python313-torch28-cpu-avx512bf16";

  # Only Ninja's own build phase reads this, and this build does not run it. preConfigure sets the
  # limit that takes effect.
  ninjaFlags = [ "-j32" ];

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

  # Only a build that Nix configures with CMake reads these. PyTorch's setup.py runs CMake itself
  # and reads environment variables, so preConfigure sets those that exist.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
    "-DUSE_CUDA=OFF"
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

    # No CUDA, even where one is installed
    export USE_CUDA=0

    echo "PyTorch 2.8.0, CPU-only, Python 3.13"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = null;
    cpuISA = "avx512bf16";
    blasProvider = "openblas";
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.8.0 without CUDA for AVX-512 with BF16";
    longDescription = ''
      GPU: none
      CPU: AVX-512 with BF16 (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512bf16 -mfma)
      CPUs: Cooper Lake, Sapphire Rapids, Zen 4 and newer; not Ice Lake
      CUDA: none; OpenBLAS does the linear algebra
      PyTorch: 2.8.0, Python 3.13
      Driver: none
      Hardware: x86_64-linux with Cooper Lake, Sapphire Rapids, Zen 4 and newer
    '';
    platforms = [ "x86_64-linux" ];
  };
})
