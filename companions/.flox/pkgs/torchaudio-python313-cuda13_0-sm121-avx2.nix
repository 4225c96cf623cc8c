# torchaudio-python313-cuda13_0-sm121-avx2
# Status impossible-host: no x86_64-linux machine has SM121: GB10 (DGX Spark) on aarch64-linux only.
# TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm121-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:cedc4e13d6439f03b7fc21f737af3f61a482f25ac04685b3f15cb3b4e5142e45
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-gpu-x86_64-linux-2.nix, torch_of_variant ? null }:
import ../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm121-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda13_0-sm121-avx2";
  title = "TorchAudio"; version = "2.10.0";
  source = { owner = "pytorch"; repo = "audio"; rev = "v2.10.0"; hash = "sha256-b1sjHVFXdNFDbdtXWSM2KisSRE/8IbzJI4rvzYQ4UMg="; fetchSubmodules = false; keepPatches = true; };
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
