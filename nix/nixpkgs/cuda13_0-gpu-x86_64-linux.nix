# cuda13_0-gpu-x86_64-linux
#
# The nixpkgs of pytorch-python313-cuda13_0-sm120-avx2 and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:b2b531e1a5622741daaa3e2f1a666d3aa0dd47a56ac07e3d5dde4f336762752d

import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/6a030d535719c5190187c4cec156f335e95e3211.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 13.0 for every package that uses CUDA
      # nixpkgs compiles NCCL for a default list of architectures; this one is for one.
      (final: prev: {
        cudaPackages = final.cudaPackages_13.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "120"; in {
            makeFlags = (oldAttrs.makeFlags or []) ++ [
              "NVCC_GENCODE=-gencode=arch=compute_${arch},code=sm_${arch}"
            ];
            env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
          });
        });
      })

      # Overlay 2: CUDA 13.0 dropped cudaDeviceProp.clockRate, which this MAGMA reads.
      # torch links a static MAGMA, which nixpkgs makes from this package.
      (final: prev: {
        magma = prev.magma.overrideAttrs (oldAttrs: {
          patches = (oldAttrs.patches or []) ++ [
            (final.fetchpatch {
              name = "cuda-13.0-clockrate-fix.patch";
              url = "https://github.com/icl-utk-edu/magma/commit/235aefb7b064954fce09d035c69907ba8a87cbcd.patch";
              hash = "sha256-i9InbxD5HtfonB/GyF9nQhFmok3jZ73RxGcIciGBGvU=";
            })
          ];
          # For this architecture, as with NCCL; MAGMA writes 75 as 750.
          cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
            "-DCMAKE_CUDA_ARCHITECTURES=120"
            "-DMIN_ARCH=1200"
          ];
          env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
        });
      })

      # Overlay 3: PyTorch 2.10.0 in place of the version that nixpkgs ships
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
