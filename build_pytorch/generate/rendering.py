"""All generated texts of a matrix at once, remembered between runs.

Rendering is deterministic, so its result is kept under the digest of everything it depends on:
the matrix, the templates, this package, Jinja2 and Python. Typed all day, `nox -s verify` then
needs no template engine. Whatever is wrong with the memory, the texts are rendered anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import files, paths
from build_pytorch.base.errors import WriteError
from build_pytorch.generate import docs, recipes
from build_pytorch.matrix.model import Matrix

MEMORY: Final = paths.PROJECT / paths.STATE / "rendered.json"


class _Memory(msgspec.Struct, frozen=True):
    key: str
    texts: dict[str, str]
    digest: str


@functools.cache
def texts(matrix: Matrix) -> dict[str, str]:
    """Recipes and whole docs by path, regions of docs by `PATH#NAME`. Raises TemplateError."""
    key = _key(matrix)
    with contextlib.suppress(OSError, msgspec.DecodeError):
        memory = msgspec.json.decode(MEMORY.read_bytes(), type=_Memory)
        if memory.key == key and memory.digest == _digest(memory.texts):
            return memory.texts
    rendered = recipes.render(matrix)
    rendered |= docs.render(matrix, rendered)
    with contextlib.suppress(
        OSError, WriteError
    ):  # a read-only checkout has no memory, and needs none
        _remember(_Memory(key, rendered, _digest(rendered)))
    return rendered


def _key(matrix: Matrix) -> str:
    """The digest of all that the texts depend on."""
    inputs = [
        *sorted(paths.TEMPLATES.rglob("*.j2")),
        *sorted(Path(__file__).parents[1].rglob("*.py")),
    ]
    hasher = hashlib.sha256(matrix.text.encode())
    for path in inputs:
        with contextlib.suppress(OSError):  # the renderer has the better message
            hasher.update(f"\0{path.name}\0".encode() + path.read_bytes())
    engine = importlib.util.find_spec("jinja2")
    stamp = Path(engine.origin).stat().st_mtime_ns if engine and engine.origin else 0
    hasher.update(f"{sys.version}{engine and engine.origin}{stamp}".encode())
    return hasher.hexdigest()


def _digest(remembered: dict[str, str]) -> str:
    """What tells a damaged memory from the one that was written."""
    return hashlib.sha256(msgspec.json.encode(remembered, order="sorted")).hexdigest()


def _remember(memory: _Memory) -> None:
    files.make_state(MEMORY.parent)
    files.write_atomically(MEMORY, msgspec.json.encode(memory))
