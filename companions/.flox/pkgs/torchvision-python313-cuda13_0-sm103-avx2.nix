# torchvision-python313-cuda13_0-sm103-avx2
# TorchVision 0.25.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm103-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:30cb66e5f566a86bddd8e2937f937eeaf2774699aeec50bbc199f9b00f591c69
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-gpu-x86_64-linux-4.nix, torch_of_variant ? null }:
import ../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm103-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda13_0-sm103-avx2";
  title = "TorchVision"; version = "0.25.0";
  source = { owner = "pytorch"; repo = "vision"; rev = "v0.25.0"; hash = "sha256-oktJHcT6T4f58pUO+HSBpbyS1ISH3zDlTsXQh6PcMy4="; fetchSubmodules = false; keepPatches = false; };
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
