# torchaudio-python313-cuda12_8-sm61-avx2
# TorchAudio 2.8.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm61-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:5f15ba1c9e4c871d939c74c23115023a93ea17f6fe0b1054d46c13c93b29d169
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-x86_64-linux-2.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm61-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda12_8-sm61-avx2";
  title = "TorchAudio"; version = "2.8.0";
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
