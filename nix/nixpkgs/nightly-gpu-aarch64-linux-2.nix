# nightly-gpu-aarch64-linux-2
#
# The nixpkgs of pytorch-python313-cuda13_0-sm121-armv9-nightly-wrapper and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:2d273d9448939cf54f350639261df55fdac35966f01869254dc70b3a352b50a8

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
      # Four of its packages are those of barstoolbluz/build-cudatoolkit, or of a local checkout
      # of it in the environment variable CUDA_TOOLKIT_REPO. Such a build is not for publishing.
      (final: prev:
        let
          cuda = final.cudaPackages_13_0;
          local = builtins.getEnv "CUDA_TOOLKIT_REPO";
          fetched = builtins.fetchTarball {
            url = "https://github.com/barstoolbluz/build-cudatoolkit/archive/0696b3dbc42d8ec2de3e1edcc09ca9d1161db73a.tar.gz";
            sha256 = "sha256-eo0XzwIliOIQsOXcDPm1swSDLXvC8RfV/YjIetcnJk4=";
          };
          repository =
            if local == "" then fetched
            else if builtins.substring 0 1 local == "/" then /. + local
            else throw "CUDA_TOOLKIT_REPO: ${local} is not an absolute path";
          files = repository + "/.flox/pkgs";
          # Each file gets the packages of this nixpkgs, and its CUDA without these replacements.
          call = final.newScope { cudaPackages = cuda; cudaPackages_13 = cuda; };
        in {
          cudaPackages = (cuda.overrideScope (_: cprev: {
            cudatoolkit = call (files + "/cudatoolkit-13_0.nix") { };
            cudnn = call (files + "/cudnn-13_0.nix") { };
            nccl = call (files + "/nccl-13_0.nix") { };
            libcusparse_lt = call (files + "/libcusparse_lt-13_0.nix") { };
          })).overrideScope (_: cprev: {
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
