"""Reports of a verification, one module for each format."""
