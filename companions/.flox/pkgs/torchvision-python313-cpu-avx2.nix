# torchvision-python313-cpu-avx2
# TorchVision 0.25.0 for the PyTorch 2.10.0 of pytorch-python313-cpu-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:031377e1e0d2c70475f3e00b74573a194fa742e4a45df247465e08e576102a5d
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-cpu-only-x86_64-linux.nix, torch_of_variant ? null }:
import ../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cpu-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cpu-avx2";
  title = "TorchVision"; version = "0.25.0";
  source = { owner = "pytorch"; repo = "vision"; rev = "v0.25.0"; hash = "sha256-oktJHcT6T4f58pUO+HSBpbyS1ISH3zDlTsXQh6PcMy4="; fetchSubmodules = false; keepPatches = false; };
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
