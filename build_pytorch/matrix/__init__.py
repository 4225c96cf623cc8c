"""matrix.toml: its types, its reader and editor, its rules, and the variants derived from it."""
