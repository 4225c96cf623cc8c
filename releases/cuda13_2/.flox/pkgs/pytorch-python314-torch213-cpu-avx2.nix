# pytorch-python314-torch213-cpu-avx2
#
# PyTorch 2.13.0 without CUDA for CPUs with AVX2, on Python 3.14.
#
# Generated from matrix.toml by templates/cpu.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:224e71e683508288fff32ee86320140287218acb961457250a197b2e56299dd5

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
    };

    overlays = [
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: AVX2 (Haswell and newer, Zen and newer)
  cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
in
# Two stages: override changes the arguments of torch, overrideAttrs single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = false;
}).overrideAttrs (oldAttrs: {
  pname = "pytorch213-python314-torch213-cpu-avx2";

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
    cpuISA = "avx2";
    blasProvider = "openblas";
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.13.0 without CUDA for AVX2";
    longDescription = ''
      GPU: none
      CPU: AVX2 (-mavx2 -mfma -mf16c)
      CPUs: Haswell and newer, Zen and newer; not Ivy Bridge, Pentium and Celeron without AVX2
      CUDA: none; OpenBLAS does the linear algebra
      PyTorch: 2.13.0, Python 3.14
      Driver: none
      Hardware: x86_64-linux with Haswell and newer, Zen and newer
    '';
    platforms = [ "x86_64-linux" ];
  };
})
