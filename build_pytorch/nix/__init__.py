"""Nix: source text, evaluation, store queries, logs and every command line of Nix."""
