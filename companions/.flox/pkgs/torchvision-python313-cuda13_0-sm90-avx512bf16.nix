# torchvision-python313-cuda13_0-sm90-avx512bf16
# TorchVision 0.25.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm90-avx512bf16.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:6f9a74b09a3e0338f5b7db864dbf23792cee5a89a44de244441515e8b8bb37fd
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-gpu-x86_64-linux-6.nix, torch_of_variant ? null }:
import ../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm90-avx512bf16.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda13_0-sm90-avx512bf16";
  title = "TorchVision"; version = "0.25.0";
  source = { owner = "pytorch"; repo = "vision"; rev = "v0.25.0"; hash = "sha256-oktJHcT6T4f58pUO+HSBpbyS1ISH3zDlTsXQh6PcMy4="; fetchSubmodules = false; keepPatches = false; };
  maxJobs = 32; cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
}
