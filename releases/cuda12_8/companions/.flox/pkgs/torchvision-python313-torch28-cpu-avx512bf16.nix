# torchvision-python313-torch28-cpu-avx512bf16
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-torch28-cpu-avx512bf16.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:9ecf3b1ecbb17ca33d57ebee8821d9fa439195c2192a2bed9815de433192df4f
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-cpu-only-x86_64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-torch28-cpu-avx512bf16.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-torch28-cpu-avx512bf16";
  title = "TorchVision"; version = "0.23.0";
  maxJobs = 32; cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
}
