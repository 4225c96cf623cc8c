# nightly-gpu-aarch64-linux
#
# The nixpkgs of pytorch-python313-cuda13_0-sm121-armv9-nightly and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:891945b319e3e87e7171b7d49aa258293a11f7b116afea8fbdefa5adcbee7452

import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/0182a361324364ae3f436a63005877674cf45efb.tar.gz";
    sha256 = "sha256-0NBlEBKkN3lufyvFegY4TYv5mCNHbi5OmBDrzihbBMQ=";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "aarch64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 13.0 for every package that uses CUDA
      # nixpkgs compiles NCCL for a default list of architectures; this one is for one.
      (final: prev: {
        cudaPackages = final.cudaPackages_13_0.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "121"; in {
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
            "-DCMAKE_CUDA_ARCHITECTURES=121"
            "-DMIN_ARCH=1210"
          ];
          env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
        });
      })

      # Overlay 3: PyTorch 2.10.0.dev20251015 in place of the version that nixpkgs ships
      (final: prev: {
        python3Packages = prev.python3Packages.override {
          overrides = pfinal: pprev: {
            torch = pprev.torch.overrideAttrs (oldAttrs: {
              version = "2.10.0.dev20251015";
              src = prev.fetchFromGitHub {
                owner = "pytorch";
                repo = "pytorch";
                rev = "6fc0ad22f0a07b6f38d138861c56a765d5a9bb02";
                hash = "";
                fetchSubmodules = true;
              };
              patches = [];
            });
          };
        };
      })
    ];
  }
