"""Smoke tests: run a built PyTorch, read its report and judge it against the matrix."""
