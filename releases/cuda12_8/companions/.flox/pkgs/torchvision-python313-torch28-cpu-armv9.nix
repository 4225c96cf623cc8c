# torchvision-python313-torch28-cpu-armv9
#
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-torch28-cpu-armv9.
#
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:8314bcbba2be6d01c54d3dd99a08f38dd4065e7988fc29af8103daff70f7efef

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
    };

    overlays = [
    ];
  }

  # The derivation of the variant, unchanged in every attribute: with another one, PyTorch would be
  # compiled once more. A recipe that is written by hand may have fewer arguments.
, torch_of_variant ? (
    let recipe = import ../../../.flox/pkgs/pytorch-python313-torch28-cpu-armv9.nix;
    in recipe (builtins.intersectAttrs (builtins.functionArgs recipe) { inherit pkgs nixpkgs_pinned; })
  )
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: ARMv9 with SVE2 (Neoverse N2, Neoverse V2 (Grace, Graviton4), Neoverse V3AE (Thor), Cortex-X925 (GB10))
  cpuFlags = [ "-march=armv9-a+sve2" ];
in
# Two stages. override comes first: nixpkgs takes the compiler, CUDA and the GPU architectures from
# torch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torchvision.override {
  torch = torch_of_variant;
}).overrideAttrs (oldAttrs: {
  pname = "torchvision-python313-torch28-cpu-armv9";

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

    echo "TorchVision 0.23.0 for pytorch-python313-torch28-cpu-armv9"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = null;
    cpuISA = "armv9";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-torch28-cpu-armv9";
    longDescription = ''
      GPU: none
      CPU: ARMv9 with SVE2 (-march=armv9-a+sve2)
      CUDA: none
      PyTorch: 2.8.0, Python 3.13
      Driver: none
      Hardware: aarch64-linux with Neoverse N2, Neoverse V2 (Grace, Graviton4), Neoverse V3AE (Thor), Cortex-X925 (GB10)
    '';
    platforms = [ "aarch64-linux" ];
  };
})
