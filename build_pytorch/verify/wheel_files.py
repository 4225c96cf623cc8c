"""Files of official wheels: the texts of PyTorch's own source, as far as a wheel has them.

They are read once and stored in the state folder, with the digest of the wheel.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from build_pytorch.base import files, foreign_json, outputs, paths

_FOLDER: Final = f"{paths.STATE}/wheel-files"
_PLACES: Final = {"cmake/public/": "torch/share/cmake/Caffe2/public/", "torch/": "torch/"}
"""Folders of the source whose CMake and Python files a wheel has, and where it has them."""


class WheelFiles(Struct, frozen=True, kw_only=True):
    """The texts of some files of a wheel by their paths in it; None for a file that it lacks."""

    wheel: str  #: name of its file
    sha256: str
    texts: dict[str, str | None]


def in_wheel(file: str) -> str:
    """Return where a wheel has a file of PyTorch's source; "" if no wheel has it."""
    for place, own in _PLACES.items():
        if file.startswith(place) and file.endswith((".cmake", ".py")):
            return own + file.removeprefix(place)
    return ""


def stored(root: Path, torch: str) -> WheelFiles | None:
    """Return what is stored of the wheel of a version; None if nothing is."""
    for name in sorted(files.walk_below(root, _FOLDER)):
        if fnmatch.fnmatchcase(Path(name).name, f"torch-{torch}-*.json"):
            document = foreign_json.decode(files.read_below(root, name))
            return msgspec.convert(document, WheelFiles)
    return None


def store(root: Path, torch: str, found: WheelFiles) -> None:
    """Store files of a wheel. Raises WriteError."""
    with files.write_errors():
        outputs.make_state(root)
        name = f"{_FOLDER}/torch-{torch}-{found.sha256}.json"
        files.write_all(root, {name: msgspec.json.encode(found)}, sync=False)
