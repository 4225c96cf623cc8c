"""Inspect built files without running their code: libraries, GPU and CPU code, config, closure."""
