# torchvision-python313-cuda12_8-sm75-armv8_2
#
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm75-armv8_2.
#
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:b95646293163c8a71406abb33c420954f121f2d380bce406fcf895cdce848639

{ pkgs ? import <nixpkgs> {}

  # The nixpkgs revision of all recipes of this release. A caller that evaluates many recipes can
  # pass one import to all recipes with the same system and overlays; Flox passes nothing.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "aarch64-linux";

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
    let recipe = import ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm75-armv8_2.nix;
    in recipe (builtins.intersectAttrs (builtins.functionArgs recipe) { inherit pkgs nixpkgs_pinned; })
  )
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: ARMv8.2 with FP16 and dot product (Neoverse N1 (Graviton2), Neoverse V1, Neoverse V2)
  cpuFlags = [ "-march=armv8.2-a+fp16+dotprod" ];
in
# Two stages. override comes first: nixpkgs takes the compiler, CUDA and the GPU architectures from
# torch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torchvision.override {
  torch = torch_of_variant;
}).overrideAttrs (oldAttrs: {
  pname = "torchvision-python313-cuda12_8-sm75-armv8_2";

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

    echo "TorchVision 0.23.0 for pytorch-python313-cuda12_8-sm75-armv8_2"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = "7.5";
    cpuISA = "armv8_2";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm75-armv8_2";
    longDescription = ''
      GPU: SM75, compute capability 7.5
      CPU: ARMv8.2 with FP16 and dot product (-march=armv8.2-a+fp16+dotprod)
      CUDA: 12.8
      PyTorch: 2.8.0, Python 3.13
      Driver: NVIDIA 525.60.13 or newer
      Hardware: T4G on aarch64-linux, where the CPU has ARMv8.2 with FP16 and dot product
    '';
    platforms = [ "aarch64-linux" ];
  };
})
