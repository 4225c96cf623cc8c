"""Evidence: the recipe that a result was built from, and tests recorded with their reports."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from build_pytorch.base import digest, files, outputs, paths
from build_pytorch.matrix.model import Package
from build_pytorch.nix.source_text import without_comments
from build_pytorch.results import ledger
from build_pytorch.results.artefacts import Artefact
from build_pytorch.results.ledger import AnyEvent, Ended, Ledger, Tested

_NIX_FILE: Final = re.compile(r"(?<![\w./])\.{1,2}/[\w./+-]*\.nix\b")
"""A relative path in Nix code."""

_Result = TypeVar("_Result", bound=msgspec.Struct)


def subject_of(package: Package) -> tuple[str, str]:
    """Return the release and the name that a package has in events of the ledger."""
    return package.release_name, package.short_id


def recipe_digest(root: Path, package: Package) -> str:
    """Return the digest of a recipe, or "" if a file cannot be read.

    It covers the files that the recipe imports, such as those of a companion.
    """
    try:
        first = _read(root, package.path)
        others = [_read(root, path) for path in _imported(package, first)]
    except OSError:
        return ""
    return digest.of_bytes(b"\0".join([first, *others]))


def _imported(package: Package, recipe: bytes) -> list[str]:
    if b"./" not in recipe:  # recipes of variants name no file; to parse them takes longer
        return []
    text = without_comments(recipe.decode(errors="replace"))
    named = (os.path.normpath(f"{package.folder}/{path}") for path in _NIX_FILE.findall(text))
    return [path for path in dict.fromkeys(named) if path != package.path]


def _read(root: Path, path: str) -> bytes:
    return files.read_below(root, path, files.LARGEST_TEXT)


def recipe_files(root: Path, packages: Iterable[Package]) -> list[str]:
    """Return the paths of recipes and of the Nix files that they name, each once."""
    found: dict[str, None] = {}
    for package in packages:
        found[package.path] = None
        with contextlib.suppress(OSError):
            found |= dict.fromkeys(_imported(package, _read(root, package.path)))
    return list(found)


def unknown_recipe(package: Package) -> str:
    """Return why a test of a result without a known recipe is not recorded, and what to do."""
    fix = f"run `invoke build {package.id}`, which records a finished result without building again"
    return f"the ledger has no recipe for this result; {fix}"


def record_evidence(  # noqa: PLR0913 - the fields of one record, all by name
    root: Path,
    package: Package | None,
    artefact: Artefact | None,
    *,
    test: ledger.TestKind,
    result: _Result,
    compared: ledger.ComparedFacts | None = None,
) -> _Result:
    """Save the report of a test and add a line to the ledger.

    `result` has the fields outcome, reasons, recorded and report. Returns it with the path of the
    report below the root, and whether the ledger got a line: only if `artefact`, which was tested,
    has a known recipe; without a package there is none. In the report the result has the keys at
    and digest as well. Raises WriteError.
    """
    moment, found = ledger.now(), msgspec.to_builtins(result)
    stamp = moment.partition("+")[0].replace(":", "").replace(".", "-")
    name = package.attribute if package else "other"
    report = f"{paths.STATE}/{ledger.REPORTS}/{test}-{name}-{stamp}Z.json"
    origin = event = None
    if package and artefact:
        events = [e for e in Ledger(root).events() if e.subject == subject_of(package)]
        origin = origin_of(events, recipe_digest(root, package), str(artefact.output))
    if package and artefact and origin is not None and found["outcome"] != "not run":
        event = Tested(
            at=moment,
            release=package.release_name,
            variant=package.short_id,
            digest=origin,
            by=test,
            outcome=found["outcome"],
            output=str(artefact.output),
            reason="; ".join(found["reasons"]),
            report=report,
            compared=compared,
        )
    added = {"recorded": event is not None, "report": report}
    document = {"at": moment, **found, **added, "digest": origin}
    whole = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    with files.write_errors(root / report):
        outputs.make_state(root)
        files.write_all(root, {report: whole})
    if event:
        Ledger(root).append(event)
    return replace(result, **added)


def origin_of(events: Sequence[AnyEvent], current: str, output: str) -> str | None:
    """Return the digest of the recipe that a store path was built from, or None if unknown.

    `events` are those of one package. Several recipes have the same output if they differ in
    comments only: then the digest is the `current` one if it is among them, else the last.
    """
    recipes = [build.digest for build in builds_of(events, output)]
    return current if current in recipes else recipes[-1] if recipes else None


def builds_of(events: Sequence[AnyEvent], output: str) -> list[Ended]:
    """Return the builds that yielded a store path."""
    ended = [event for event in events if isinstance(event, Ended) and event.outcome == "built"]
    return [build for build in ended if output in build.outputs]
