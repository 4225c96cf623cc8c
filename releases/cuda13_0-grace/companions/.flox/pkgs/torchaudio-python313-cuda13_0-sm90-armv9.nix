# torchaudio-python313-cuda13_0-sm90-armv9
# TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm90-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:0aae1ef5bd26c1d2bc9b4e9f4c2531d405c086b3fe2a5cdeb1ee0d8fd61f3692
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_0-gpu-aarch64-linux-5.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm90-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda13_0-sm90-armv9";
  title = "TorchAudio"; version = "2.10.0";
  source = { owner = "pytorch"; repo = "audio"; rev = "v2.10.0"; hash = "sha256-b1sjHVFXdNFDbdtXWSM2KisSRE/8IbzJI4rvzYQ4UMg="; fetchSubmodules = false; keepPatches = true; };
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
