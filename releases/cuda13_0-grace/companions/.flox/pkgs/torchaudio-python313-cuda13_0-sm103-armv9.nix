# torchaudio-python313-cuda13_0-sm103-armv9
# TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm103-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:37ad3322118be729b5e827cc9e73c3accadfe5a32b32fbc3f187175c4f7766dc
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_0-gpu-aarch64-linux-3.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm103-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda13_0-sm103-armv9";
  title = "TorchAudio"; version = "2.10.0";
  source = { owner = "pytorch"; repo = "audio"; rev = "v2.10.0"; hash = "sha256-b1sjHVFXdNFDbdtXWSM2KisSRE/8IbzJI4rvzYQ4UMg="; fetchSubmodules = false; keepPatches = true; };
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
