# torchvision-python313-cuda13_0-sm80-avx512
# TorchVision 0.25.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm80-avx512.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:e6b010119b960e6efb926b10f9f2d164757ba53cfc2bafabfd61e0124f3d68dc
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-gpu-x86_64-linux-9.nix, torch_of_variant ? null }:
import ../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm80-avx512.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda13_0-sm80-avx512";
  title = "TorchVision"; version = "0.25.0";
  source = { owner = "pytorch"; repo = "vision"; rev = "v0.25.0"; hash = "sha256-oktJHcT6T4f58pUO+HSBpbyS1ISH3zDlTsXQh6PcMy4="; fetchSubmodules = false; keepPatches = false; };
  maxJobs = 32; cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mfma" ];
}
