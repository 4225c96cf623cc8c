# cuda12_8-cpu-only-aarch64-linux
#
# The nixpkgs of pytorch-python313-torch28-cpu-armv8_2 and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:827f9abbd830d4f2415b62d3cab1d532227c97dd932df0f93e495eab9b81aaf5

import (builtins.fetchTarball {
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
