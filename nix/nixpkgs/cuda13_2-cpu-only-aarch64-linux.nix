# cuda13_2-cpu-only-aarch64-linux
#
# The nixpkgs of pytorch-python314-torch213-cpu-armv8_2 and of all other recipes with
# the same import, for release.nix and for companions.
#
# Generated from matrix.toml by templates/nixpkgs.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:b734ce3870601cfbdc1aa97fa4ed6bd80f83d8c6a1464db7dd6e879b4cf87af2

import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/b4fd65b198c599cbe814fcb9f42d25d021595ec9.tar.gz";
    sha256 = "sha256-ilerN1WLSvF+HMjziC/Wv99J5y02maDH+6hZPwsORKg=";
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
