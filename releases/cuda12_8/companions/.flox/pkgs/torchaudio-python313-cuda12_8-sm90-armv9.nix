# torchaudio-python313-cuda12_8-sm90-armv9
# TorchAudio 2.8.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm90-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:e7cc19eb682cf0f3a2f247c3de1ec45647b5434e070af13bf487283822f8a02c
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-aarch64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm90-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda12_8-sm90-armv9";
  title = "TorchAudio"; version = "2.8.0";
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
