# torchaudio-python313-cuda12_8-sm61-avx
# TorchAudio 2.8.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm61-avx.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:96c853c3d41a47971d59b62360de74088e97ceeaf0045ddbf165a940d3fd1d20
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-x86_64-linux-2.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm61-avx.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda12_8-sm61-avx";
  title = "TorchAudio"; version = "2.8.0";
  maxJobs = 32; cpuFlags = [ "-mavx" "-mno-fma" "-mno-bmi" "-mno-bmi2" "-mno-avx2" ];
}
