# torchvision-python314-cuda13_2-sm90-armv9
# TorchVision 0.28.0 for the PyTorch 2.13.0 of pytorch-python314-cuda13_2-sm90-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:d51729bde0e2f303de7e92d214a90d9c026cd3c98a26b3ab0005f5f4591b3919
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-gpu-aarch64-linux-5.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-cuda13_2-sm90-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python314-cuda13_2-sm90-armv9";
  title = "TorchVision"; version = "0.28.0";
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
