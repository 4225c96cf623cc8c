"""Generated texts: recipes, docs, release.nix and the schema, and the plan of what changes."""
