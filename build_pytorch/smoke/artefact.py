"""A built variant on the disk: its store path, the Python that runs it, the recipe it is from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from build_pytorch import digest, proc
from build_pytorch.builds.ledger import Ended, Ledger
from build_pytorch.errors import ToolError
from build_pytorch.model import Variant


class Artefact(Struct, frozen=True, kw_only=True):
    """What a result link points to."""

    link: Path
    output: Path
    """The store path, with every symbolic link resolved."""

    def holds(self, file: str) -> bool:
        """Whether a file, such as the one that torch was imported from, belongs to it."""
        return bool(file) and Path(file).resolve().is_relative_to(self.output)


def link_of(root: Path, variant: Variant) -> Path:
    """Where `flox build` leaves the result: beside `.flox/`."""
    above, found, _ = f"/{variant.release.folder}/".partition("/.flox/")
    return (root / above.strip("/") if found else root) / f"result-{variant.package}"


def find(root: Path, variant: Variant) -> Artefact | None:
    """The result of a variant, or None where it was not built or was collected as garbage."""
    link = link_of(root, variant)
    output = link.resolve()
    return Artefact(link=link, output=output) if output.is_dir() else None


def built_from(root: Path, variant: Variant, artefact: Artefact) -> str | None:
    """The digest of the recipe that a result was built from, or None where nothing tells.

    The ledger knows what `invoke build` built. For the result of a plain `flox build` a link that
    is not older than the recipe tells it: the build reads the recipe, and makes the link anew.
    """
    recipe = root / variant.path
    try:
        changed = recipe.stat().st_mtime_ns
        current = digest.of_bytes(recipe.read_bytes())
    except OSError:
        return None
    recorded = [
        event.digest
        for event in Ledger(root).of(variant)
        if isinstance(event, Ended)
        and event.outcome == "built"
        and str(artefact.output) in event.outputs
    ]
    if recorded:  # recipes that differ in comments only have one output
        return current if current in recorded else recorded[-1]
    return current if artefact.link.lstat().st_mtime_ns >= changed else None


def interpreter(artefact: Artefact, version: str) -> tuple[Path, dict[str, str | None]]:
    """The Python of an artefact's closure, and the environment in which it imports the artefact.

    `version` is that of Python, as `3.13`. Raises ToolError where the closure has none.
    """
    closure = _closure(artefact.output)
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
        "PYTHONHOME": None,
    }


def _closure(output: Path) -> list[Path]:
    """The artefact, what it propagates (in that order), and the rest of its closure.

    nixpkgs lists what a Python package needs in nix-support/propagated-build-inputs. A package
    with several outputs has the list in its `dev`, so the rest of the closure counts as well:
    the wrapped programs of a Python package name all of it.
    """
    found = list(_propagated([output], set()))
    if proc.which("nix-store"):
        done = proc.capture(["nix-store", "--query", "--requisites", str(output)])
        found += [Path(line) for line in sorted(done.stdout.split())]
    return list(dict.fromkeys(found))


def _propagated(paths: Iterable[Path], seen: set[Path]) -> Iterable[Path]:
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
