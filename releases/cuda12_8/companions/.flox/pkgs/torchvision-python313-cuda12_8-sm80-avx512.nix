# torchvision-python313-cuda12_8-sm80-avx512
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm80-avx512.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:b1fc8ae3f434f1526f714858200a001097fc6e54913b57f0dfba80da73492ec7
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-x86_64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm80-avx512.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda12_8-sm80-avx512";
  title = "TorchVision"; version = "0.23.0";
  maxJobs = 32; cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mfma" ];
}
