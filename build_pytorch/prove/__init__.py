"""Proof of built files without a GPU: which machines their code is for, and what they depend on."""
