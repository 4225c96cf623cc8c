"""All generated texts of a matrix, kept between runs.

Without the stored texts `invoke all` takes 3.5 s of CPU time in place of 2.0 (314 recipes, means of
3 runs, 2026-11-23): most of it are the 1,100 answers of the picker.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import files, outputs, paths
from build_pytorch.base.errors import LinkError
from build_pytorch.generate import docs, recipes
from build_pytorch.matrix.model import Matrix

MEMORY: Final = f"{paths.STATE}/rendered.json"


class _StoredTexts(msgspec.Struct, frozen=True):
    key: str
    texts: dict[str, str]


@functools.cache
def texts(matrix: Matrix) -> dict[str, str]:
    """Return recipes and whole docs by path, regions of docs by `PATH#NAME`.

    Raises TemplateError as recipes.render does.
    """
    key = _key(matrix)
    with contextlib.suppress(OSError, LinkError, msgspec.DecodeError):
        stored = msgspec.json.decode(files.read_below(matrix.root, MEMORY), type=_StoredTexts)
        if stored.key == key:
            return stored.texts
    rendered = recipes.render(matrix)
    rendered |= docs.render(matrix, rendered)
    if (matrix.root / paths.MATRIX).exists():
        with contextlib.suppress(OSError, LinkError):  # in a read-only checkout nothing is stored
            outputs.make_state(matrix.root)
            document = msgspec.json.encode(_StoredTexts(key, rendered))
            files.write_all(matrix.root, {MEMORY: document}, sync=False)
    return rendered


def _key(matrix: Matrix) -> str:
    """Return a digest of the matrix, the templates, the program and what it runs on."""
    hasher = hashlib.sha256(f"{sys.version}{sys.flags.optimize}".encode())
    hasher.update(paths.program_of(matrix.root).encode())
    hasher.update(matrix.text.encode())
    for name, path in _inputs(matrix.root):
        with contextlib.suppress(OSError):  # the renderer has the better message
            hasher.update(f"\0{name}\0".encode() + files.read_named(path))
    for library in ("jinja2", "markupsafe", "msgspec"):
        if (found := importlib.util.find_spec(library)) and found.origin:
            hasher.update(f"\0{found.origin}\0{Path(found.origin).stat().st_mtime_ns}".encode())
    return hasher.hexdigest()


def _inputs(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield name and path of the templates, and of the code and tables of this package."""
    suffixes = {".j2", ".css", ".js", ".py", ".sh", ".toml"}
    own = paths.in_use(root, paths.TEMPLATES)
    for folder in (own, paths.SHIPPED / paths.TEMPLATES, Path(__file__).parents[1]):
        for path in sorted(folder.rglob("*.*")):
            if path.suffix in suffixes:
                yield path.relative_to(folder), path
