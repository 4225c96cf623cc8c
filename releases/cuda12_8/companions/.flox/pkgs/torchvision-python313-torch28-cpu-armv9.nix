# torchvision-python313-torch28-cpu-armv9
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-torch28-cpu-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:18c5e62fc3ce11539fe9d14f1614b55de7c2f060f1fb7c77bd9fb28db4fff9b7
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-cpu-only-aarch64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-torch28-cpu-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-torch28-cpu-armv9";
  title = "TorchVision"; version = "0.23.0";
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
