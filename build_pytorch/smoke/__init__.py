"""The smoke test: real work with a built PyTorch, judged against the matrix."""
