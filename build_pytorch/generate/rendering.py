"""All generated texts of a matrix, kept between runs.

Without the stored texts `invoke all --check` takes 24 % more CPU time, `nox -s verify` 22 %,
`invoke status` 20 % and one phase 46 % (medians of 9 runs). Their key is a digest of everything
that they depend on; on any doubt the texts are rendered again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import files, paths
from build_pytorch.base.errors import LinkError
from build_pytorch.generate import docs, recipes
from build_pytorch.matrix.model import Matrix

MEMORY: Final = f"{paths.STATE}/rendered.json"
STARTED: Final = time.time() - 10
"""A source file that is newer than this may differ from the code that this process runs."""


class _StoredTexts(msgspec.Struct, frozen=True):
    key: str
    texts: dict[str, str]
    digest: str


@functools.cache
def texts(matrix: Matrix) -> dict[str, str]:
    """Return recipes and whole docs by path, regions of docs by `PATH#NAME`.

    Raises TemplateError as recipes.render does.
    """
    key, newest = inputs(matrix)
    with contextlib.suppress(OSError, LinkError, msgspec.DecodeError):
        stored = msgspec.json.decode(files.read_below(matrix.root, MEMORY), type=_StoredTexts)
        if stored.key == key and stored.digest == _digest(stored.texts):
            return stored.texts
    rendered = recipes.render(matrix)
    rendered |= docs.render(matrix, rendered)
    if newest < STARTED and inputs(matrix)[0] == key:
        stored = _StoredTexts(key, rendered, _digest(rendered))
        with contextlib.suppress(OSError, LinkError):  # in a read-only checkout nothing is stored
            files.make_state(matrix.root)
            files.write_all(matrix.root, {MEMORY: msgspec.json.encode(stored)}, sync=False)
    return rendered


def inputs(matrix: Matrix) -> tuple[str, float]:
    """Return a digest of matrix, templates and program, and the time of the newest file."""
    hasher = hashlib.sha256(f"{sys.version}{sys.flags.optimize}".encode())
    hasher.update(matrix.text.encode())
    newest = 0.0
    for path in _inputs(matrix.root):
        with contextlib.suppress(OSError):  # the renderer has the better message
            newest = max(newest, path.stat().st_mtime)
            hasher.update(f"\0{path}\0".encode() + files.read_named(path))
    for path in _libraries():
        stat = path.stat()
        hasher.update(f"\0{path}\0{stat.st_size}\0{stat.st_mtime_ns}".encode())
    return hasher.hexdigest(), newest


def _inputs(root: Path) -> Iterator[Path]:
    """Yield the templates with their styles and scripts, the code and tables of this package."""
    for kind in ("*.j2", "*.css", "*.js"):
        yield from sorted(paths.in_use(root, paths.TEMPLATES).rglob(kind))
    for kind in ("*.py", "*.sh", "*.toml"):
        yield from sorted(Path(__file__).parents[1].rglob(kind))


def _libraries() -> Iterator[Path]:
    """Yield the files of the libraries that render. An installation changes their times."""
    for library in ("jinja2", "markupsafe", "msgspec"):
        found = importlib.util.find_spec(library)
        for folder in (found and found.submodule_search_locations) or ():
            yield from sorted(p for p in Path(folder).iterdir() if p.suffix in {".py", ".so"})


def _digest(rendered: dict[str, str]) -> str:
    """Return a digest that detects damaged texts."""
    return hashlib.sha256(msgspec.json.encode(rendered, order="sorted")).hexdigest()
