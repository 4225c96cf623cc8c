"""Build backends: the programs that build recipes. A new one is a file here and a registry line."""
