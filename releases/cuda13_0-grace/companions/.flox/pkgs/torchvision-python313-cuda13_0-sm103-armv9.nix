# torchvision-python313-cuda13_0-sm103-armv9
# TorchVision 0.25.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm103-armv9.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:51acc2c2fed5c937561947b8fb3416742fbe99521250d7e592097a536be23895
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_0-gpu-aarch64-linux-3.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm103-armv9.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda13_0-sm103-armv9";
  title = "TorchVision"; version = "0.25.0";
  source = { owner = "pytorch"; repo = "vision"; rev = "v0.25.0"; hash = "sha256-oktJHcT6T4f58pUO+HSBpbyS1ISH3zDlTsXQh6PcMy4="; fetchSubmodules = false; keepPatches = false; };
  maxJobs = 32; cpuFlags = [ "-march=armv9-a+sve2" ];
}
