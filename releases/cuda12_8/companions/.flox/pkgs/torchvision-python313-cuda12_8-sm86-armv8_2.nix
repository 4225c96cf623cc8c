# torchvision-python313-cuda12_8-sm86-armv8_2
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm86-armv8_2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:1e8c6c53c10dcf708b167707233192c7ac8fee3260edb11595ff15db6665c919
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-aarch64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm86-armv8_2.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda12_8-sm86-armv8_2";
  title = "TorchVision"; version = "0.23.0";
  maxJobs = 32; cpuFlags = [ "-march=armv8.2-a+fp16+dotprod" ];
}
