"""Descriptions of machines in files: JSON, strictly read, written whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from build_pytorch.base import files
from build_pytorch.base.errors import BuildPytorchError, WriteError
from build_pytorch.hardware.machine_model import Machine


def text_of(machine: Machine) -> str:
    """The description as it is saved."""
    return json.dumps(msgspec.to_builtins(machine), indent=2, ensure_ascii=False) + "\n"


def load(path: Path) -> Machine:
    """Read a description; `-` is standard input.

    Raises BuildPytorchError with the file, the path within it, what was found and what is allowed.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else files.read_regular_file(path)
    except OSError as error:
        raise BuildPytorchError(f"{name}: cannot be read: {error.strerror}") from None
    return parse(data, name)


def parse(data: bytes, name: str) -> Machine:
    """Parse a description. `name` is the file that errors mention. Raises as `load` does."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        fix = "write one with `invoke describe-machine --output FILE`"
        raise BuildPytorchError(f"{name}: not JSON ({error}); {fix}") from None
    try:
        machine = msgspec.convert(raw, Machine, strict=True)
    except msgspec.ValidationError as error:
        from build_pytorch.matrix.matrix_errors import dotted, explain

        trail, problem = explain(error, raw, Machine)
        where = dotted(trail) or "top level"
        raise BuildPytorchError(f"{name}: {where}: {problem}") from None
    if len(machine.by_index) != len(machine.gpus):
        indices = [gpu.index for gpu in machine.gpus]
        position = next(i for i, index in enumerate(indices) if index in indices[:i])
        raise BuildPytorchError(
            f"{name}: gpus[{position}].index: found {indices[position]} twice; "
            "allowed: each GPU once"
        )
    return machine


def save(machine: Machine, path: Path) -> None:
    """Write a description, in place of an older one or of nothing; a link stays one.

    Raises WriteError where another file stands there, or where it cannot be written.
    """
    if path.exists() or path.is_symlink():
        try:
            load(path)
        except BuildPytorchError:
            raise WriteError(
                f"{path}: exists and describes no machine; name another file"
            ) from None
    files.write_atomically(path, text_of(machine).encode(), follow_link=True)
