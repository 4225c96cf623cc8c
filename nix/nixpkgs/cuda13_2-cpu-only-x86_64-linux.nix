# cuda13_2-cpu-only-x86_64-linux
#
# The nixpkgs of pytorch-python314-torch213-cpu-avx2 and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:6cf2130a1a02da605465237d2864269a7d8b4434bb516d7dfd753522fa968862

import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/b4fd65b198c599cbe814fcb9f42d25d021595ec9.tar.gz";
    sha256 = "sha256-ilerN1WLSvF+HMjziC/Wv99J5y02maDH+6hZPwsORKg=";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
    };

    overlays = [
    ];
  }
