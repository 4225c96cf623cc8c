# cuda12_8-gpu-x86_64-linux-2
#
# The nixpkgs of pytorch-python313-cuda12_8-sm61-avx and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:b0f73236f3ba39f9ac468c1388e38a2bc338e24e4465d5de303e9073136936e2

import (builtins.fetchTarball {
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
      # nixpkgs compiles NCCL for a default list of architectures; this one is for one.
      (final: prev: {
        cudaPackages = final.cudaPackages_12_8.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "61"; in {
            makeFlags = (oldAttrs.makeFlags or []) ++ [
              "NVCC_GENCODE=-gencode=arch=compute_${arch},code=sm_${arch}"
            ];
          });
        });
      })

      # Overlay 2: torch links a static MAGMA, which nixpkgs makes from this package.
      (final: prev: {
        magma = prev.magma.overrideAttrs (oldAttrs: {
          # For this architecture, as with NCCL; MAGMA writes 75 as 750.
          cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
            "-DCMAKE_CUDA_ARCHITECTURES=61"
            "-DMIN_ARCH=610"
          ];
        });
      })
    ];
  }
