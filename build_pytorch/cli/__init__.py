"""The commands: each declared once in commands.py, with its options; one module for its output."""
