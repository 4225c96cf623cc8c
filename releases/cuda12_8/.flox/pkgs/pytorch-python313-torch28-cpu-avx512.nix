# pytorch-python313-torch28-cpu-avx512
#
# PyTorch 2.8.0 without CUDA for CPUs with AVX-512, on Python 3.13.
#
# Generated from matrix.toml by templates/cpu.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:9b1e8b3af0209a27e0c2bf63590ca44b778a6bbd0a9672b5315aee33abae408c

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
    };

    overlays = [
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: AVX-512 (Skylake-X, Skylake-SP, Ice Lake, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mfma" ];
in
# Two stages: the first changes what nixpkgs decides from, the second single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = false;
}).overrideAttrs (oldAttrs: {
  pname = "pytorch28-python313-torch28-cpu-avx512";

  # Read only where Ninja is called by Nix itself; the limit that counts is set in preConfigure.
  ninjaFlags = [ "-j32" ];

  # Keeps the build away from machines that are too small for it.
  requiredSystemFeatures = [ "big-parallel" ];

  # For whoever configures with CMake. PyTorch's setup.py runs CMake itself and reads the
  # environment instead, so preConfigure says the same once more.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
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

    # No CUDA, even on a machine that has it
    export USE_CUDA=0

    echo "PyTorch 2.8.0, CPU-only, Python 3.13"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = null;
    cpuISA = "avx512";
    blasProvider = "openblas";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.8.0 without CUDA for AVX-512";
    longDescription = ''
      GPU: none
      CPU: AVX-512 (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma)
      CUDA: none; OpenBLAS does the linear algebra
      PyTorch: 2.8.0, Python 3.13
      Driver: none
      Hardware: x86_64-linux with Skylake-X, Skylake-SP, Ice Lake, Zen 4 and newer
    '';
    platforms = [ "x86_64-linux" ];
  };
})
