# torchaudio-python313-torch28-cpu-avx2
# TorchAudio 2.8.0 for the PyTorch 2.8.0 of pytorch-python313-torch28-cpu-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:abd6945aaa539838298ae58b39a341506c004107e484072dcb7f9f20e3c0307e
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda12_8-cpu-only-x86_64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python313-torch28-cpu-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python313-torch28-cpu-avx2";
  title = "TorchAudio"; version = "2.8.0";
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
