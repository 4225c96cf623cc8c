"""Configures with CMake as PyTorch's setup.py does: settings come from the environment."""

import os
import subprocess

subprocess.run(
    [
        *("cmake", "-G", "Ninja", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release"),
        *(f"-D{name}={value}" for name, value in os.environ.items() if name.startswith("CMAKE_")),
    ],
    check=True,
)
