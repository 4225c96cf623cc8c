# pytorch-python313-cpu-avx512bf16
#
# PyTorch 2.10.0 without CUDA for CPUs with AVX-512 with BF16, on Python 3.13.
#
# Generated from matrix.toml by templates/cpu.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:07b5fd07b9f340ba36781ed807853c674c56b57bf5a6dc5da9611abcc63b18a8

{ pkgs ? import <nixpkgs> {}

  # The one nixpkgs revision that every recipe of this release is built from. A caller that
  # evaluates many recipes may hand in one import for all that agree in system and overlays;
  # Flox never does.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/6a030d535719c5190187c4cec156f335e95e3211.tar.gz";
  }) {
    # Said outright, so that any machine can evaluate this recipe and hand the build to a
    # builder of that platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      allowBroken = true;
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

  # CPU: AVX-512 with BF16 (Cooper Lake, Sapphire Rapids, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
in
# Two stages: the first changes what nixpkgs decides from, the second single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = false;
}).overrideAttrs (oldAttrs: {
  pname = "pytorch210-python313-cpu-avx512bf16";

  # nixpkgs' patches are for the version it ships; said here as well as in the overlay.
  patches = [];

  # Read only where Ninja is called by Nix itself; the limit that counts is set in preConfigure.
  ninjaFlags = [ "-j32" ];

  # Keeps the build away from machines that are too small for it.
  requiredSystemFeatures = [ "big-parallel" ];

  # For whoever configures with CMake. PyTorch's setup.py runs CMake itself and reads the
  # environment instead, so preConfigure says the same once more.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
    "-DTORCH_BUILD_VERSION=2.10.0"
    "-DUSE_CUDA=OFF"
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

    # nixpkgs still exports the version it ships, and the headers compare with this one
    # (TORCH_FEATURE_VERSION against the version macros of the release).
    export PYTORCH_BUILD_VERSION=2.10.0
    echo "2.10.0" > version.txt

    # No CUDA, even on a machine that has it
    export USE_CUDA=0

    echo "PyTorch 2.10.0, CPU-only, Python 3.13"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = null;
    cpuISA = "avx512bf16";
    blasProvider = "openblas";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.10.0 without CUDA for AVX-512 with BF16";
    longDescription = ''
      GPU: none
      CPU: AVX-512 with BF16 (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512bf16 -mfma)
      CPUs: Cooper Lake, Sapphire Rapids, Zen 4 and newer; not Ice Lake
      CUDA: none; OpenBLAS does the linear algebra
      PyTorch: 2.10.0, Python 3.13
      Driver: none
      Hardware: x86_64-linux with Cooper Lake, Sapphire Rapids, Zen 4 and newer
    '';
    platforms = [ "x86_64-linux" ];
  };
})
