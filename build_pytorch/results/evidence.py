"""Evidence: the digest of a recipe, and tests of its result, recorded with their reports."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from build_pytorch.base import digest, files
from build_pytorch.matrix.model import Package
from build_pytorch.nix import derivations
from build_pytorch.nix.quoting import without_comments
from build_pytorch.results import ledger
from build_pytorch.results.artefacts import Artefact
from build_pytorch.results.ledger import Event, TestKind, subject_of

_NIX_FILE: Final = re.compile(r"(?<![\w./])\.{1,2}/[\w./+-]*\.nix\b")
"""A relative path in Nix code."""

_Result = TypeVar("_Result", bound=msgspec.Struct)


def recipe_files(root: Path, package: Package) -> list[str]:
    """Return the path of a recipe and those of the Nix files that it names. Raises OSError."""
    recipe = files.read_below(root, package.path, files.LARGEST_TEXT)
    if b"./" not in recipe:  # recipes of variants name no file; to parse them takes longer
        return [package.path]
    named = _NIX_FILE.findall(without_comments(recipe.decode(errors="replace")))
    paths = (os.path.normpath(f"{package.folder}/{path}") for path in named)
    return list(dict.fromkeys([package.path, *paths]))


def recipe_digest(root: Path, package: Package) -> str:
    """Return the digest of a recipe and of the files that it names, or "" if one is unreadable.

    A local checkout of CUDA packages, which nobody else has, makes it another recipe.
    """
    try:
        names = recipe_files(root, package)
        texts = [files.read_below(root, name, files.LARGEST_TEXT) for name in names]
    except OSError:
        return ""
    if checkout := derivations.local_checkout(package.variant):
        texts.append(os.fsencode(checkout))
    return digest.of_bytes(b"\0".join(texts))


def unknown_recipe(package: Package) -> str:
    """Return why a test of a result without a known recipe is not recorded, and what to do."""
    fix = f"run `invoke build {package.id}`, which records a finished result without building again"
    return f"the ledger has no recipe for this result; {fix}"


def record_evidence(
    root: Path,
    package: Package | None,
    artefact: Artefact | None,
    *,
    test: TestKind,
    result: _Result,
) -> _Result:
    """Save the report of a test and add a line to the ledger.

    `result` has the fields outcome, reasons, recorded and report. Returns it with the path of the
    report below the root, and whether the ledger got a line: only if `artefact`, which was tested,
    has a known recipe; without a package there is none. In the report the result has the keys at
    and digest as well. Raises WriteError.
    """
    moment, found = ledger.now(), msgspec.to_builtins(result)
    stamp = moment.partition("+")[0].replace(":", "").replace(".", "-")
    report = f"{ledger.REPORTS}/{test}-{package.attribute if package else 'other'}-{stamp}Z.json"
    origin = event = None
    if package and artefact:
        output = str(artefact.output)
        events = [e for e in ledger.read(root).events if e.subject == subject_of(package)]
        origin = origin_of(events, recipe_digest(root, package), output)
        if origin is not None and found["outcome"] != "not run":
            event = ledger.event_of(
                package,
                "tested",
                digest=origin,
                by=test,
                outcome=found["outcome"],
                output=output,
                reason="; ".join(found["reasons"]),
                report=report,
            )
    added = {"recorded": event is not None, "report": report}
    document = {"at": moment, **found, **added, "digest": origin}
    with files.write_errors(root / report):
        whole = msgspec.json.format(msgspec.json.encode(document), indent=2)
        files.write_all(root, {**files.IGNORED, report: whole + b"\n"})
    if event:
        ledger.append(root, event)
    return replace(result, **added)


def origin_of(events: Iterable[Event], current: str, output: str) -> str | None:
    """Return the digest of the recipe that a store path was built from, or None if unknown.

    `events` are those of one package. Several recipes have the same output if they differ in
    comments only: then the digest is the `current` one if it is among them, else the last.
    """
    recipes = [event.digest for event in events if output in event.outputs]
    return current if current in recipes else recipes[-1] if recipes else None
