# torchaudio-python314-cuda13_2-sm86-armv8_2
# TorchAudio 2.11.0 for the PyTorch 2.13.0 of pytorch-python314-cuda13_2-sm86-armv8_2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:0c7aae034cfc9651acd3f5233a3e31bfeeea4203678b9829223242bbd8865893
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-gpu-aarch64-linux-8.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-cuda13_2-sm86-armv8_2.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python314-cuda13_2-sm86-armv8_2";
  title = "TorchAudio"; version = "2.11.0";
  maxJobs = 32; cpuFlags = [ "-march=armv8.2-a+fp16+dotprod" ];
}
