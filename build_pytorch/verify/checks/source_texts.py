"""Checks that PyTorch's source has the texts that recipes, and nixpkgs for them, replace in it.

The official wheel of a version has some of its source files; what no wheel has is not run.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from build_pytorch.base import files, foreign_json, outputs, paths
from build_pytorch.base.console import shortened
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import TomlTable
from build_pytorch.matrix.tables import Release
from build_pytorch.verify.check import CheckList, Context, Finding, Subjects

_FOLDER: Final = f"{paths.STATE}/wheel-files"
_PLACES: Final = {"cmake/public/": "torch/share/cmake/Caffe2/public/", "torch/": "torch/"}
"""Folders of the source whose CMake and Python files a wheel has, and where it has them."""
_TABLE: Final = Path(__file__).parents[1] / "source_texts.toml"
_QUOTED: Final = r"""(?:'[^']*'|"[^"]*")"""
_SUBSTITUTE: Final = (
    rf"( *)substituteInPlace (\S+)((?:\s+(?:\\\n\s*)?--replace-\w+ {_QUOTED} {_QUOTED})+)"
)
_REPLACED: Final = rf"--replace-(\w+) ({_QUOTED})"
_SED: Final = r"sed -i '([^']+)' (\S+)"


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
            with contextlib.suppress(ValueError):  # not what `store` writes
                document = foreign_json.decode(files.read_below(root, name))
                return msgspec.convert(document, WheelFiles)
    return None


def store(root: Path, torch: str, found: WheelFiles) -> None:
    """Store files of a wheel. Raises WriteError."""
    with files.write_errors():
        outputs.make_state(root)
        name = f"{_FOLDER}/torch-{torch}-{found.sha256}.json"
        files.write_all(root, {name: msgspec.json.encode(found)}, sync=False)


class SourceText(TomlTable, frozen=True, kw_only=True):
    """A text of PyTorch's source that is replaced; source_texts.toml explains the fields."""

    file: ft.Text
    text: str = ""
    may_lack: bool = False
    wheel: str = ""
    expressions: tuple[ft.Version, ...] = ()


class _Table(TomlTable, frozen=True, kw_only=True):
    source: ft.Origin
    checked: ft.Date
    text: tuple[SourceText, ...]


@functools.cache
def of_nixpkgs() -> tuple[SourceText, ...]:
    """Return what torch expressions of nixpkgs replace or expect."""
    return msgspec.convert(tomllib.loads(files.read_named(_TABLE).decode()), _Table).text


def of_recipe(nix: str) -> Iterator[SourceText]:
    """Yield what the hooks of a recipe replace by substituteInPlace, and each script of sed."""
    code = nix.replace("''${", "${").replace("'''", "''")
    for indent, file, replaced in re.findall(_SUBSTITUTE, code):
        for kind, quoted in re.findall(_REPLACED, replaced):
            text = quoted[1:-1].replace(f"\n{indent}", "\n")  # as Nix strips it
            yield SourceText(file=file, text=text, may_lack=kind != "fail")
    for script, file in re.findall(_SED, code):
        yield SourceText(file=file, text=script, wheel="-")


def shown_by(text: SourceText) -> str:
    """Return the file of a wheel that shows a text; "" if none does."""
    return (text.wheel or in_wheel(text.file)).removeprefix("-")


def replaced(matrix: Matrix, release: Release, recipes: Iterable[str]) -> list[SourceText]:
    """Return what recipes of a release replace, and nixpkgs for a source in place of its own."""
    pin = matrix.pins[release.nixpkgs.pin].torch
    known = () if release.torch.is_of_pin else of_nixpkgs()
    of_pin = [text for text in known if pin in text.expressions]
    return list(dict.fromkeys([*(t for each in recipes for t in of_recipe(each)), *of_pin]))


def _texts(context: Context) -> Iterator[tuple[str, tuple[Any, ...] | str]]:
    """Yield each text of each release, or why it cannot be looked up."""
    for name, release in context.matrix.releases.items():
        recipes = [r for v, r in context.present_variants if v.release_name == name]
        if recipes:
            yield from _of_release(context, name, release, [recipe.code for recipe in recipes])


def _of_release(
    context: Context, name: str, release: Release, recipes: list[str]
) -> Iterator[tuple[str, tuple[Any, ...] | str]]:
    version, pin = release.torch.version, context.matrix.pins[release.nixpkgs.pin].torch
    is_read = any(pin in text.expressions for text in of_nixpkgs())
    if not (release.torch.is_of_pin or is_read):
        yield name, f"not known what nixpkgs replaces for its PyTorch {pin}"
    wheel = None if release.torch.is_nightly else stored(context.matrix.root, version)
    for text in replaced(context.matrix, release, recipes):
        subject = f"{name}: {text.file}: {' '.join(text.text.split())}".removesuffix(": ")
        if not (place := shown_by(text)):
            yield subject, "what is in no wheel cannot be seen"
        elif release.torch.is_nightly:
            yield subject, "a nightly has no wheel on PyPI"
        elif wheel is None or place not in wheel.texts:
            read = "`invoke verify --only source` reads it"
            yield subject, f"the wheel of PyTorch {version} was not read; {read}"
        else:
            yield subject, (context, name, text, place, wheel)


CHECKS: Final = CheckList(Subjects(each=_texts))


@CHECKS.add(
    "PyTorch's source has each text that is replaced in it, as far as its wheel shows",
    why="A text that is not there ends the build in its first minute, or leaves a fix without "
    "effect; nixpkgs replaces the texts of its own version of PyTorch.",
    fix="take a nixpkgs whose PyTorch is nearer with `invoke bump --nixpkgs`, or correct the text",
)
def source_texts(
    context: Context, release: str, text: SourceText, place: str, wheel: WheelFiles
) -> Iterator[Finding]:
    source = wheel.texts[place]
    if source is not None and text.text in source:
        return
    where = text.file if place.endswith(text.file) else f"{place} (of {text.file})"
    wanted = f"{shortened(text.text, 60)!r} in {where}" if text.text else text.file
    found = f"{wheel.wheel} has no {place}"
    if source is not None:
        first = text.text.splitlines()[0].strip()
        lines = [line.strip() for line in source.splitlines()]
        near = difflib.get_close_matches(first, lines, n=1, cutoff=0.4)
        found = f"absent in {wheel.wheel}" + (
            f"; nearest: {shortened(near[0], 60)!r}" if near else ""
        )
    finding = context.matrix_finding(f"[release.{release}.torch]", found, wanted)
    yield msgspec.structs.replace(finding, severity="warning") if text.may_lack else finding
