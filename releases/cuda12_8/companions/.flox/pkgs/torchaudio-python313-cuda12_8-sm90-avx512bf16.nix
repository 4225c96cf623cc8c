# torchaudio-python313-cuda12_8-sm90-avx512bf16
# TorchAudio 2.8.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm90-avx512bf16.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:a17316b49053fd6e721a5101826983337f5c78e4b2fb3a5f94ecfbeec4ee2268
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-x86_64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm90-avx512bf16.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda12_8-sm90-avx512bf16";
  title = "TorchAudio"; version = "2.8.0";
  maxJobs = 32; cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
}
