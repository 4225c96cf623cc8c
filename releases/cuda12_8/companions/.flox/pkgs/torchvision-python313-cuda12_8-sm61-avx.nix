# torchvision-python313-cuda12_8-sm61-avx
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm61-avx.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:744f80704af04ac1af8f5634ee907c78ce2026b9357e4e4c499e0da0e5f28e61
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-x86_64-linux-2.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm61-avx.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda12_8-sm61-avx";
  title = "TorchVision"; version = "0.23.0";
  maxJobs = 32; cpuFlags = [ "-mavx" "-mno-fma" "-mno-bmi" "-mno-bmi2" "-mno-avx2" ];
}
