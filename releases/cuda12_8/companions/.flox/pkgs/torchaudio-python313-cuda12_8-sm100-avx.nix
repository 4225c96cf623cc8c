# torchaudio-python313-cuda12_8-sm100-avx
#
# TorchAudio 2.8.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm100-avx.
#
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:b8c9fa99b6b3a2f88551d692f0e23f0b407ca2f182f0cc0052151c0c68b8cd89

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

  # The derivation of the variant, unchanged in every attribute: with another one, PyTorch would be
  # compiled once more. A recipe that is written by hand may have fewer arguments.
, torch_of_variant ? (
    let recipe = import ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm100-avx.nix;
    in recipe (builtins.intersectAttrs (builtins.functionArgs recipe) { inherit pkgs nixpkgs_pinned; })
  )
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: AVX (Sandy Bridge, Ivy Bridge (Xeon E5 v2))
  cpuFlags = [ "-mavx" "-mno-fma" "-mno-bmi" "-mno-bmi2" "-mno-avx2" ];
in
# Two stages. override comes first: nixpkgs takes the compiler, CUDA and the GPU architectures from
# torch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torchaudio.override {
  torch = torch_of_variant;
}).overrideAttrs (oldAttrs: {
  pname = "torchaudio-python313-cuda12_8-sm100-avx";

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

  # Whoever installs the package needs torch itself, which is one of several outputs.
  propagatedBuildInputs = (oldAttrs.propagatedBuildInputs or []) ++ [ torch_of_variant.out ];

  preConfigure = (oldAttrs.preConfigure or "") + ''

    # CPU instruction set
    export CXXFLAGS="${lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
    export CFLAGS="${lib.concatStringsSep " " cpuFlags} $CFLAGS"

    # Limit of parallel compile jobs: PyTorch's build extension reads MAX_JOBS, CMake and Ninja get
    # NIX_BUILD_CORES, where 0 means all cores.
    export MAX_JOBS=32
    cores=''${NIX_BUILD_CORES:-0}
    if [ "$cores" -eq 0 ]; then cores=$(nproc); fi
    export NIX_BUILD_CORES=$((cores < 32 ? cores : 32))

    # The GPU architectures of the variant
    export TORCH_CUDA_ARCH_LIST="${torch_of_variant.gpuArch}"

    echo "TorchAudio 2.8.0 for pytorch-python313-cuda12_8-sm100-avx"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = "10.0";
    cpuISA = "avx";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "TorchAudio 2.8.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm100-avx";
    longDescription = ''
      GPU: SM100, compute capability 10.0
      CPU: AVX (-mavx -mno-fma -mno-bmi -mno-bmi2 -mno-avx2)
      CUDA: 12.8
      PyTorch: 2.8.0, Python 3.13
      Driver: NVIDIA 570.26 or newer
      Hardware: B200, B100 on x86_64-linux, where the CPU has AVX
    '';
    platforms = [ "x86_64-linux" ];
  };
})
