# torchaudio-python314-cuda13_2-sm121-armv9
# TorchAudio 2.11.0 for the PyTorch 2.13.0 of pytorch-python314-cuda13_2-sm121-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:fcab2654358d596ee79c8b70dc3d8d3338b8598158453e8a53dca0992d72b8b6
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-gpu-aarch64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-cuda13_2-sm121-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python314-cuda13_2-sm121-armv9";
  title = "TorchAudio"; version = "2.11.0";
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
