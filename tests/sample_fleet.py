"""A ledger with its logs and reports: what a fleet leaves behind."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.results import artefacts
from build_pytorch.results.ledger import Event, EventKind, append, event_of
from build_pytorch.results.package_state import PackageState, package_states

LAST = datetime(2026, 11, 20, 12, tzinfo=UTC)


class SampleFleet:
    """Writes events, as builds and tests of a checkout would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    def add(self, package: Package, event: EventKind, at: datetime = LAST, **fields: Any) -> Event:
        """Write an event of the recipe that a package has."""
        fields["at"] = at.isoformat(timespec="milliseconds")
        digest = artefacts.recipe_digest(self.root, package)
        added = event_of(package, event, digest=digest, **fields)
        append(self.root, added)
        return added

    def started(self, package: Package, at: datetime = LAST, *, pid: int = 999999999) -> Event:
        self.count += 1
        return self.add(package, "started", at, attempt=f"20261120T120000.000-{pid}-{self.count}")

    def ended(self, package: Package, outcome: str, seconds: float, **fields: Any) -> Event:
        """A build that began at LAST."""
        attempt, at = self.started(package).attempt, LAST + timedelta(seconds=seconds)
        fields |= {"outcome": outcome, "seconds": seconds, "attempt": attempt}
        return self.add(package, "ended", at, **fields)

    def built(self, package: Package, store: Path, *, seconds: float = 7200.0) -> str:
        """A build that succeeded, with its result in the store and the link to it."""
        output = store / f"{'a' * 32}-python3.13-{package.package}-2.10.0"
        output.mkdir(parents=True)
        (self.root / f"result-{package.package}").symlink_to(output)
        self.ended(package, "built", seconds, outputs=(str(output),))
        return str(output)

    def failed(self, package: Package, log: str, **fields: Any) -> None:
        event = self.ended(package, "failed", 600.0, **fields)
        path = self.root / f".build-pytorch/logs/{package.package}/{event.attempt}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log)

    def tested(self, package: Package, output: str, **fields: Any) -> None:
        self.add(package, "tested", LAST + timedelta(hours=3), output=output, **fields)


class Checkout(SampleFleet):
    """A folder with recipes of some packages, their ledger, and a store in which Nix is not."""

    def __init__(self, root: Path, matrix: Matrix) -> None:
        super().__init__(root)
        self.packages = {package.id: package for package in matrix.packages}
        self.store = root / "store"

    def package(self, id_: str) -> Package:
        """A package with a recipe."""
        package = self.packages[id_]
        for recipe in (package.path, package.variant.path):
            path = self.root / recipe
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(id_)
        return package

    def state(self, id_: str) -> PackageState:
        return package_states(self.root, [self.packages[id_]])[id_]


@pytest.fixture
def checkout(matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    found = Checkout(tmp_path, matrix)
    monkeypatch.setenv("NIX_STORE_DIR", str(found.store))
    folders = os.environ["PATH"].split(":")
    kept = [folder for folder in folders if not (Path(folder) / "nix-store").exists()]
    monkeypatch.setenv("PATH", ":".join(kept))
    return found
