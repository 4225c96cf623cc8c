# torchvision-python314-torch213-cpu-armv8_2
# TorchVision 0.28.0 for the PyTorch 2.13.0 of pytorch-python314-torch213-cpu-armv8_2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:0609908f676bd424f42d55bbbd0c7c8427c4ad6ecabc6ee0f3adb4e3b9d43a0f
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-cpu-only-aarch64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-torch213-cpu-armv8_2.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python314-torch213-cpu-armv8_2";
  title = "TorchVision"; version = "0.28.0";
  maxJobs = 32; cpuFlags = [ "-march=armv8.2-a+fp16+dotprod" ];
}
