"""Machine descriptions: reading and writing their JSON files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from build_pytorch.base import files
from build_pytorch.base.errors import BuildPytorchError, WriteError
from build_pytorch.hardware.machine_model import Machine
from build_pytorch.matrix import matrix_errors


def text_of(machine: Machine) -> str:
    """Return a description as the text of its file."""
    return json.dumps(msgspec.to_builtins(machine), indent=2, ensure_ascii=False) + "\n"


def load(path: Path) -> Machine:
    """Read a description; `-` is standard input.

    Raises BuildPytorchError that names the file, the key, what was found and what is allowed.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else files.read_regular_file(path)
    except OSError as error:
        raise BuildPytorchError(f"{name}: cannot be read: {error.strerror}") from None
    return parse(data, name)


def parse(data: bytes, name: str) -> Machine:
    """Parse a description; `name` is its file in errors. Raises BuildPytorchError as `load`."""
    try:
        raw = msgspec.json.decode(data)
        machine = msgspec.convert(raw, Machine)
    except msgspec.ValidationError as error:
        wrong = matrix_errors.explain(error, raw, Machine)
        errors = [f"{name}: {matrix_errors.dotted(trail)}: {what}" for trail, what in wrong]
        raise BuildPytorchError(matrix_errors.message(errors)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        fix = "write one with `invoke describe-machine --output FILE`"
        raise BuildPytorchError(f"{name}: not JSON ({error}); {fix}") from None
    indices = [gpu.index for gpu in machine.gpus]
    for place, index in enumerate(indices):
        if index in indices[:place]:
            what = f"found {index} twice; allowed: each GPU once"
            raise BuildPytorchError(f"{name}: gpus[{place}].index: {what}")
    return machine


def save(machine: Machine, path: Path) -> None:
    """Write a description to a new file, or replace an older one; a symbolic link is followed.

    Raises WriteError if the path exists and is no description, or if it cannot be written.
    """
    if path.exists() or path.is_symlink():
        try:
            load(path)
        except BuildPytorchError:
            raise WriteError(
                f"{path}: not a machine description; refusing to overwrite it; name another file"
            ) from None
    files.write_atomically(path, text_of(machine).encode(), follow_link=True)
