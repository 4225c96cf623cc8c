# nightly-gpu-aarch64-linux
#
# The nixpkgs of pytorch-python313-cuda13_0-sm121-armv9-nightly and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:dfc13ede9e5279f13d4c04eb5d4d983ece81fdf4f63a741a5a16683128f5a64a

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
      (final: prev: { cudaPackages = final.cudaPackages_13_0; })

      # Overlay 2: PyTorch 2.10.0.dev20251015 in place of the version that nixpkgs ships
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
