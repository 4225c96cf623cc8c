# torchaudio-python313-cuda13_0-sm89-avx512bf16
# TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm89-avx512bf16.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:58f5639f9b691369c809b5b26b60371206e77ee4834c61b8fa5b7977a38595e3
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-gpu-x86_64-linux-7.nix, torch_of_variant ? null }:
import ../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm89-avx512bf16.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-cuda13_0-sm89-avx512bf16";
  title = "TorchAudio"; version = "2.10.0";
  source = { owner = "pytorch"; repo = "audio"; rev = "v2.10.0"; hash = "sha256-b1sjHVFXdNFDbdtXWSM2KisSRE/8IbzJI4rvzYQ4UMg="; fetchSubmodules = false; keepPatches = true; };
  maxJobs = 32; cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
}
