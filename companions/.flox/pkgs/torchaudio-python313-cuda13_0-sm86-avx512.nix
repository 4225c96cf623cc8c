# torchaudio-python313-cuda13_0-sm86-avx512
# TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm86-avx512.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:a1c441c4965eba72f64311ab5ec9a1794039d7ab6afb524501d9113d64444f9e
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-gpu-x86_64-linux-8.nix, torch_of_variant ? null }:
import ../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm86-avx512.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda13_0-sm86-avx512";
  title = "TorchAudio"; version = "2.10.0";
  source = { owner = "pytorch"; repo = "audio"; rev = "v2.10.0"; hash = "sha256-b1sjHVFXdNFDbdtXWSM2KisSRE/8IbzJI4rvzYQ4UMg="; fetchSubmodules = false; keepPatches = true; };
  maxJobs = 32; cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mfma" ];
}
