# torchvision-python313-cuda12_8-sm120-avx512bf16
#
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm120-avx512bf16.
#
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:d5251534bd7795348b1597216a356aa2f22ec5069c99e1ae9546567898bd3b1d

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
    let recipe = import ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm120-avx512bf16.nix;
    in recipe (builtins.intersectAttrs (builtins.functionArgs recipe) { inherit pkgs nixpkgs_pinned; })
  )
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: AVX-512 with BF16 (Cooper Lake, Sapphire Rapids, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
in
# Two stages. override comes first: nixpkgs takes the compiler, CUDA and the GPU architectures from
# torch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torchvision.override {
  torch = torch_of_variant;
}).overrideAttrs (oldAttrs: {
  pname = "torchvision-python313-cuda12_8-sm120-avx512bf16";

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

    echo "TorchVision 0.23.0 for pytorch-python313-cuda12_8-sm120-avx512bf16"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = "12.0";
    cpuISA = "avx512bf16";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm120-avx512bf16";
    longDescription = ''
      GPU: SM120, compute capability 12.0
      CPU: AVX-512 with BF16 (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512bf16 -mfma)
      CUDA: 12.8
      PyTorch: 2.8.0, Python 3.13
      Driver: NVIDIA 570.26 or newer
      Hardware: RTX 5090 to 5050, RTX PRO Blackwell on x86_64-linux, where the CPU has AVX-512 with BF16
    '';
    platforms = [ "x86_64-linux" ];
  };
})
