# torchvision-python314-cuda13_2-sm121-armv9
# TorchVision 0.28.0 for the PyTorch 2.13.0 of pytorch-python314-cuda13_2-sm121-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:ab462143446ebec949dda98a39a636bf458fbc81fdd98de85d064ced58f20e16
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-gpu-aarch64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-cuda13_2-sm121-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python314-cuda13_2-sm121-armv9";
  title = "TorchVision"; version = "0.28.0";
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
