# torchvision-python314-cuda13_2-sm103-armv9
# TorchVision 0.28.0 for the PyTorch 2.13.0 of pytorch-python314-cuda13_2-sm103-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:89d4cc3f94127063e63d9a0787003959c940c83d8c7e42c1c1b2da4c91f6ecc7
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-gpu-aarch64-linux-3.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-cuda13_2-sm103-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python314-cuda13_2-sm103-armv9";
  title = "TorchVision"; version = "0.28.0";
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
