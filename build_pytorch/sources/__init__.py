"""Sources with a hash in matrix.toml: take hashes, move a release, list newer versions."""
