# torchvision-python313-cuda12_8-sm80-armv9
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm80-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:51a318e22e253076ae20c6283e9b5fa42d538bca592d8d553bb1e0588ebb2e67
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-aarch64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm80-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda12_8-sm80-armv9";
  title = "TorchVision"; version = "0.23.0";
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
