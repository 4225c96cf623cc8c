# torchvision-python314-cuda13_2-sm103-avx2
# TorchVision 0.28.0 for the PyTorch 2.13.0 of pytorch-python314-cuda13_2-sm103-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:38eea9bb404024b5d2b71b9bd7e18a1ee16cd61607e06a79ba8595895278fbfa
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-gpu-x86_64-linux-2.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-cuda13_2-sm103-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python314-cuda13_2-sm103-avx2";
  title = "TorchVision"; version = "0.28.0";
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
