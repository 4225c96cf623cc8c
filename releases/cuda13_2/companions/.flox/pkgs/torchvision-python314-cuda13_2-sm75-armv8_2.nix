# torchvision-python314-cuda13_2-sm75-armv8_2
# TorchVision 0.28.0 for the PyTorch 2.13.0 of pytorch-python314-cuda13_2-sm75-armv8_2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:b4e8633398d81f419d39ddec4dd5d4d50392b295a80a5f34b06879d59fe993d2
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-gpu-aarch64-linux-10.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-cuda13_2-sm75-armv8_2.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python314-cuda13_2-sm75-armv8_2";
  title = "TorchVision"; version = "0.28.0";
  maxJobs = 32; cpuFlags = [ "-march=armv8.2-a+fp16+dotprod" ];
}
