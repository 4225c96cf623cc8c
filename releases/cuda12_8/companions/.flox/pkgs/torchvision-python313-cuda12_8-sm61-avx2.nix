# torchvision-python313-cuda12_8-sm61-avx2
# TorchVision 0.23.0 for the PyTorch 2.8.0 of pytorch-python313-cuda12_8-sm61-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:12a9ed8e973a3fe8b8cc5d2e1417265a9dfb7d521dcb61b9572e61c4f1293cb9
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-gpu-x86_64-linux-2.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-cuda12_8-sm61-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchvision;
  pname = "torchvision-python313-cuda12_8-sm61-avx2";
  title = "TorchVision"; version = "0.23.0";
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
