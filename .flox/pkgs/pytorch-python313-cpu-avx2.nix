# pytorch-python313-cpu-avx2
#
# PyTorch 2.10.0 without CUDA for CPUs with AVX2, on Python 3.13.
#
# Generated from matrix.toml by templates/cpu.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:14b1d330e75c2868c2f02fe704bc0ae3b5367adf9b07af62e1793a0dc21a8529

{ pkgs ? import <nixpkgs> {}

  # The nixpkgs revision of all recipes of this release. A caller that evaluates many recipes can
  # pass one import to all recipes with the same system and overlays; Flox passes nothing.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/6a030d535719c5190187c4cec156f335e95e3211.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
    };

    overlays = [
      # Overlay 1: PyTorch 2.10.0 in place of the version that nixpkgs ships
      (final: prev: {
        python3Packages = prev.python3Packages.override {
          overrides = pfinal: pprev: {
            torch = pprev.torch.overrideAttrs (oldAttrs: {
              version = "2.10.0";
              src = prev.fetchFromGitHub {
                owner = "pytorch";
                repo = "pytorch";
                rev = "v2.10.0";
                hash = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ=";
                fetchSubmodules = true;
              };
              patches = [];
            });
          };
        };
      })
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
  pname = "pytorch210-python313-cpu-avx2";

  # The patches of nixpkgs are for the version that it ships. The overlay clears them as well.
  patches = [];

  # Only Ninja's own build phase reads this, and this build does not run it. preConfigure sets the
  # limit that takes effect.
  ninjaFlags = [ "-j32" ];

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

  # Only a build that Nix configures with CMake reads these. PyTorch's setup.py runs CMake itself
  # and reads environment variables, so preConfigure sets those that exist.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
    "-DTORCH_BUILD_VERSION=2.10.0"
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

    # nixpkgs exports the version that it ships. Headers of another version do not compile with it:
    # they compare TORCH_FEATURE_VERSION with their own version.
    export PYTORCH_BUILD_VERSION=2.10.0
    echo "2.10.0" > version.txt

    # No CUDA, even where one is installed
    export USE_CUDA=0

    echo "PyTorch 2.10.0, CPU-only, Python 3.13"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  # nixpkgs replaces texts of the version that it ships. One that this version does not have is a
  # warning in the log and not the end of the build.
  postPatch = builtins.replaceStrings [ "--replace-fail" ] [ "--replace-warn" ] (oldAttrs.postPatch or "");

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = null;
    cpuISA = "avx2";
    blasProvider = "openblas";
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.10.0 without CUDA for AVX2";
    longDescription = ''
      GPU: none
      CPU: AVX2 (-mavx2 -mfma -mf16c)
      CPUs: Haswell and newer, Zen and newer; not Ivy Bridge, Pentium and Celeron without AVX2
      CUDA: none; OpenBLAS does the linear algebra
      PyTorch: 2.10.0, Python 3.13
      Driver: none
      Hardware: x86_64-linux with Haswell and newer, Zen and newer
    '';
    platforms = [ "x86_64-linux" ];
  };
})
