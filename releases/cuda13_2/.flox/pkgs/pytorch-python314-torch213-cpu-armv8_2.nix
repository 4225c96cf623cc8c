# pytorch-python314-torch213-cpu-armv8_2
#
# PyTorch 2.13.0 without CUDA for CPUs with ARMv8.2 with FP16 and dot product, on Python 3.14.
#
# Generated from matrix.toml by templates/cpu.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:52291b7f8c62d140f51feb624493191f3b2c67afc7b5279eb736f71613fdf2a1

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
    };

    overlays = [
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: ARMv8.2 with FP16 and dot product (Neoverse N1 (Graviton2), Neoverse V1, Neoverse V2)
  cpuFlags = [ "-march=armv8.2-a+fp16+dotprod" ];
in
# Two stages: override changes the arguments of torch, overrideAttrs single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = false;
}).overrideAttrs (oldAttrs: {
  pname = "pytorch213-python314-torch213-cpu-armv8_2";

  # Only Ninja's own build phase reads this, and this build does not run it. preConfigure sets the
  # limit that takes effect.
  ninjaFlags = [ "-j32" ];

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

  # nixpkgs hands these to CMake, after its own.
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

    echo "PyTorch 2.13.0, CPU-only, Python 3.14"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = null;
    cpuISA = "armv8_2";
    blasProvider = "openblas";
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.13.0 without CUDA for ARMv8.2 with FP16 and dot product";
    longDescription = ''
      GPU: none
      CPU: ARMv8.2 with FP16 and dot product (-march=armv8.2-a+fp16+dotprod)
      CPUs: Neoverse N1 (Graviton2), Neoverse V1, Neoverse V2; not A64FX
      CUDA: none; OpenBLAS does the linear algebra
      PyTorch: 2.13.0, Python 3.14
      Driver: none
      Hardware: aarch64-linux with Neoverse N1 (Graviton2), Neoverse V1, Neoverse V2
    '';
    platforms = [ "aarch64-linux" ];
  };
})
