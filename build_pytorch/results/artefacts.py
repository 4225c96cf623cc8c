"""A built variant on the disk: its store path, what it needs, and the Python that runs it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from build_pytorch.base import files, paths, process
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Variant
from build_pytorch.results import result_lookup
from build_pytorch.results.ledger import REPORTS, Ledger, now


class Artefact(Struct, frozen=True, kw_only=True):
    """What a result link leads to."""

    link: Path
    output: Path
    """The store path."""

    def holds(self, file: str) -> bool:
        """Whether a file, such as the one that torch was imported from, belongs to it."""
        return bool(file) and Path(file).resolve().is_relative_to(self.output)


def find(root: Path, variant: Variant) -> Artefact | None:
    """The result of a variant, or None where it was not built or was collected as garbage."""
    link = result_lookup.link(root, variant)
    output = result_lookup.target(link)
    return Artefact(link=link, output=Path(output)) if output else None


def absence(root: Path, variant: Variant) -> str:
    """Why there is no result to look at, and what makes one."""
    link = result_lookup.link(root, variant)
    what = f"no {link.name} here"
    if link.is_symlink() or link.exists():
        what = f"{link.name} does not lead into the Nix store"
    return f"{what}; `invoke build {variant.id}` makes it"


def origin(root: Path, variant: Variant, artefact: Artefact) -> str | None:
    """The digest of the recipe that a result was built from, or None where nothing tells.

    Raises WriteError where the ledger cannot be read.
    """
    events = Ledger(root).of(variant)
    return result_lookup.origin(
        events, result_lookup.recipe_digest(root, variant), str(artefact.output)
    )


def unrecorded(variant: Variant) -> str:
    """Why a verdict on a result of unknown origin is not recorded, and what mends that."""
    return (
        "nothing tells which recipe the result was built from; "
        f"`invoke build {variant.id}` recognises what the store has at once"
    )


def interpreter(artefact: Artefact, version: str) -> tuple[Path, dict[str, str | None]]:
    """The Python of an artefact's closure, and the environment in which it imports the artefact.

    `version` is that of Python, as `3.13`. Raises ToolError where the closure has none.
    """
    closure = list(_propagated([artefact.output], set()))
    if process.which("nix-store"):
        closure += [Path(path) for path in sorted(requisites(str(artefact.output)))]
    closure = list(dict.fromkeys(closure))
    name = re.compile(rf"[a-z0-9]+-python3-{re.escape(version)}[a-z0-9.]*")
    pythons = [path / "bin" / f"python{version}" for path in closure if name.fullmatch(path.name)]
    python = next((path for path in pythons if path.exists()), None)
    if python is None:
        raise ToolError(
            f"{artefact.link.name}: its closure has no Python {version}; is {artefact.output} "
            "a Python package?"
        )
    folders = [path / "lib" / f"python{version}" / "site-packages" for path in closure]
    search = [
        str(folder)
        for folder in folders
        if folder.is_dir() and python.parents[1] not in folder.parents
    ]
    return python, {
        "PYTHONPATH": ":".join(search),
        "PYTHONNOUSERSITE": "1",  # no torch of the person's own
        "PYTHONSAFEPATH": "1",  # nor one of the folder that this runs in; as -P, from 3.11 on
        "PYTHONHOME": None,
    }


def requisites(output: str) -> list[str]:
    """Everything that a store path needs at run time, itself included. Raises ToolError."""
    return process.capture(["nix-store", "--query", "--requisites", output]).stdout.split()


def _propagated(paths: Iterable[Path], seen: set[Path]) -> Iterable[Path]:
    """The paths and what they propagate, in that order.

    nixpkgs lists what a Python package needs in nix-support/propagated-build-inputs. A package
    with several outputs has the list in its `dev`, so the rest of the closure counts as well:
    the wrapped programs of a Python package name all of it.
    """
    for path in paths:
        if path in seen:
            continue
        seen.add(path)
        yield path
        try:
            text = (path / "nix-support/propagated-build-inputs").read_text(encoding="utf-8")
        except OSError:
            continue
        yield from _propagated([Path(word) for word in text.split()], seen)


def report_name(test: str, variant: Variant) -> str:
    """Where the report of a test that ends now is kept, below the root."""
    stamp = now().partition("+")[0].replace(":", "").replace(".", "-")
    return f"{paths.STATE}/{REPORTS}/{test}-{variant.package}-{stamp}Z.json"


def save_report(root: Path, name: str, document: object) -> None:
    """Write a report whole or not at all, below the root. Raises WriteError."""
    path = root / name
    with files.write_errors(path):
        files.make_state(root / paths.STATE)
        path.parent.mkdir(exist_ok=True)
    data = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    files.write_atomically(path, data)
