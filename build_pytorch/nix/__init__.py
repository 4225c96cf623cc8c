"""TODO nix."""
