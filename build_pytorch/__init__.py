"""Build PyTorch for your own hardware: a fleet of Nix recipes derived from one matrix."""
