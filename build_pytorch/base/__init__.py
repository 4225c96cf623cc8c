"""Errors, files, other programs and output: what every other room is built on."""
