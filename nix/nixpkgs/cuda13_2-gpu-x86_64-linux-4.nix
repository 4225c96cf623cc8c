# cuda13_2-gpu-x86_64-linux-4
#
# The nixpkgs of pytorch-python314-cuda13_2-sm90-avx2 and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:ac32b8592122f6b65423c074d95352750a56983ab8d981a283238428e32196af

import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/b4fd65b198c599cbe814fcb9f42d25d021595ec9.tar.gz";
    sha256 = "sha256-ilerN1WLSvF+HMjziC/Wv99J5y02maDH+6hZPwsORKg=";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 13.2 for every package that uses CUDA
      # nixpkgs compiles NCCL for a default list of architectures; this one is for one.
      (final: prev: {
        cudaPackages = final.cudaPackages_13_2.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "90"; in {
            makeFlags = (oldAttrs.makeFlags or []) ++ [
              "NVCC_GENCODE=-gencode=arch=compute_${arch},code=sm_${arch}"
            ];
            env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
          });
        });
      })

      # Overlay 2: torch links a static MAGMA, which nixpkgs makes from this package.
      (final: prev: {
        magma = prev.magma.overrideAttrs (oldAttrs: {
          # For this architecture, as with NCCL; MAGMA writes 75 as 750.
          cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
            "-DCMAKE_CUDA_ARCHITECTURES=90"
            "-DMIN_ARCH=900"
          ];
          env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
        });
      })
    ];
  }
