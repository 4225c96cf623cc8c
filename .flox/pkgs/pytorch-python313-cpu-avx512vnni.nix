# pytorch-python313-cpu-avx512vnni
#
# PyTorch 2.10.0 without CUDA for CPUs with AVX-512 with VNNI, on Python 3.13.
#
# Generated from matrix.toml by templates/cpu.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:67b6153c92e5f9262c256b9117ab29d73e0c3342a5789272ddb13e1d97b9a408

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

  # CPU: AVX-512 with VNNI (Cascade Lake, Ice Lake, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512vnni" "-mfma" ];
in
# Two stages: the first changes what nixpkgs decides from, the second single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = false;
}).overrideAttrs (oldAttrs: {
  pname = "pytorch210-python313-cpu-avx512vnni";

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
    cpuISA = "avx512vnni";
    blasProvider = "openblas";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.10.0 without CUDA for AVX-512 with VNNI";
    longDescription = ''
      GPU: none
      CPU: AVX-512 with VNNI (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512vnni -mfma)
      CPUs: Cascade Lake, Ice Lake, Zen 4 and newer; not Skylake-SP
      CUDA: none; OpenBLAS does the linear algebra
      PyTorch: 2.10.0, Python 3.13
      Driver: none
      Hardware: x86_64-linux with Cascade Lake, Ice Lake, Zen 4 and newer
    '';
    platforms = [ "x86_64-linux" ];
  };
})
