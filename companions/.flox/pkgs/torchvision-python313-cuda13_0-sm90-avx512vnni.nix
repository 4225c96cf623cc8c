# torchvision-python313-cuda13_0-sm90-avx512vnni
# TorchVision 0.25.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm90-avx512vnni.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:44c2866dcd045cd5759a408898c960ca9380da4071510395c863df943e7b876d
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-gpu-x86_64-linux-6.nix, torch_of_variant ? null }:
import ../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm90-avx512vnni.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda13_0-sm90-avx512vnni";
  title = "TorchVision"; version = "0.25.0";
  source = { owner = "pytorch"; repo = "vision"; rev = "v0.25.0"; hash = "sha256-oktJHcT6T4f58pUO+HSBpbyS1ISH3zDlTsXQh6PcMy4="; fetchSubmodules = false; keepPatches = false; };
  maxJobs = 32; cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512vnni" "-mfma" ];
}
