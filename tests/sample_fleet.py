"""A ledger with its logs and reports: what a fleet leaves behind."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.results import artefacts
from build_pytorch.results.ledger import Event, append
from build_pytorch.results.package_state import PackageState, package_states

LAST = datetime(2026, 11, 20, 12, tzinfo=UTC)


class SampleFleet:
    """Writes events, as builds and tests of a checkout would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    def started(self, variant: Package, at: datetime, *, pid: int = 999999999) -> Event:
        self.count += 1
        attempt = f"20261120T120000.000-{pid}-{self.count}"
        event = Event(event="started", **self.common(variant, at), attempt=attempt)
        self.append(event)
        return event

    def ended(self, start: Event, outcome: Any, seconds: float, **fields: Any) -> Event:
        at = datetime.fromisoformat(start.at) + timedelta(seconds=seconds)
        fields |= {"event": "ended", "at": at.isoformat(timespec="milliseconds")}
        event = replace(start, outcome=outcome, seconds=seconds, **fields)
        self.append(event)
        return event

    def built(self, variant: Package, store: Path, *, seconds: float = 7200.0) -> str:
        """A build that succeeded, with its result in the store and the link to it."""
        output = store / f"{'a' * 32}-python3.13-{variant.package}-2.10.0"
        output.mkdir(parents=True)
        link = self.root / f"result-{variant.package}"
        link.symlink_to(output)
        self.ended(self.started(variant, LAST), "built", seconds, outputs=(str(output),))
        return str(output)

    def failed(self, variant: Package, log: str, *, cause: str = "", message: str = "") -> Event:
        start = self.started(variant, LAST)
        path = self.root / f".build-pytorch/logs/{variant.package}/{start.attempt}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log)
        return self.ended(start, "failed", 600.0, cause=cause, message=message)

    def tested(self, variant: Package, output: str, **fields: Any) -> None:
        common = self.common(variant, LAST + timedelta(hours=3))
        self.append(Event(event="tested", **common, output=output, **fields))

    def append(self, event: Event) -> None:
        append(self.root, event)

    def common(self, variant: Package, at: datetime) -> dict[str, Any]:
        return {
            "at": at.isoformat(timespec="milliseconds"),
            "release": variant.release_name,
            "variant": variant.short_id,
            "digest": artefacts.recipe_digest(self.root, variant),
        }


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
