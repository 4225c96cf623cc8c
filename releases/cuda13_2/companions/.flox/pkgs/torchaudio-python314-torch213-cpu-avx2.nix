# torchaudio-python314-torch213-cpu-avx2
# TorchAudio 2.11.0 for the PyTorch 2.13.0 of pytorch-python314-torch213-cpu-avx2.
# A stub: nix/companion.nix makes the package from these values.
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase4`.
# Digest of this file, with zeros in place of it: sha256:c5863d8496e59fd95522753052183593515778eb3deadd7d1c7252d3b420fd0f
{ pkgs ? import <nixpkgs> {}, nixpkgs_pinned ? import ../../../../../nix/nixpkgs/cuda13_2-cpu-only-x86_64-linux.nix, torch_of_variant ? null }:
import ../../../../../nix/companion.nix { inherit pkgs nixpkgs_pinned torch_of_variant; } {
  variant = ../../../.flox/pkgs/pytorch-python314-torch213-cpu-avx2.nix;
  package = nixpkgs_pinned.python3Packages.torchaudio;
  pname = "torchaudio-python314-torch213-cpu-avx2";
  title = "TorchAudio"; version = "2.11.0";
  maxJobs = 32; cpuFlags = [ "-mavx2" "-mfma" "-mf16c" ];
}
