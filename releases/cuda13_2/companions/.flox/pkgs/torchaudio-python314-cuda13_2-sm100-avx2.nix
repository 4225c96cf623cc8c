# torchaudio-python314-cuda13_2-sm100-avx2
# TorchAudio 2.11.0 for the PyTorch 2.13.0 of pytorch-python314-cuda13_2-sm100-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:0ebf19a95c627250ac98f69867d7368be4b4d635b2d01d34e38123b6dc67fbcd
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-gpu-x86_64-linux-3.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-cuda13_2-sm100-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python314-cuda13_2-sm100-avx2";
  title = "TorchAudio"; version = "2.11.0";
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
