"""A ledger with its logs and reports: what a fleet leaves behind."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomlkit
from conftest import PROJECT, write_recipes

from build_pytorch.cli.board import board_document
from build_pytorch.generate import board
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.results import evidence
from build_pytorch.results.ledger import AnyEvent, Ended, Ledger, Published, Started, Tested
from build_pytorch.results.package_state import PackageState, package_states

LAST = datetime(2026, 11, 20, 12, tzinfo=UTC)


class SampleFleet:
    """Writes events, as builds and tests of a checkout would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0
        self.commons: dict[str, Any] = {}

    def started(self, variant: Package, at: datetime, *, pid: int = 999999999) -> Started:
        self.count += 1
        attempt = f"20261120T120000.000-{pid}-{self.count}"
        log = f".build-pytorch/logs/{variant.package}/{attempt}.log"
        event = Started(
            **self.common(variant, at), attempt=attempt, backend="nix", log=log, cores=8
        )
        Ledger(self.root).append(event)
        return event

    def ended(self, start: Started, outcome: Any, seconds: float, **fields: Any) -> Ended:
        at = datetime.fromisoformat(start.at) + timedelta(seconds=seconds)
        common: dict[str, Any] = {
            "release": start.release,
            "variant": start.variant,
            "digest": start.digest,
        }
        event = Ended(
            at=at.isoformat(timespec="milliseconds"),
            attempt=start.attempt,
            outcome=outcome,
            seconds=seconds,
            **common,
            **fields,
        )
        Ledger(self.root).append(event)
        return event

    def built(self, variant: Package, store: Path, *, seconds: float = 7200.0) -> str:
        """A build that succeeded, with its result in the store and the link to it."""
        output = store / f"{'a' * 32}-python3.13-{variant.package}-2.10.0"
        output.mkdir(parents=True)
        link = self.root / f"result-{variant.package}"
        link.symlink_to(output)
        start = self.started(variant, LAST)
        fields: dict[str, Any] = {"outputs": (str(output),), "steps": 7421, "peak_memory": 12 << 30}
        self.ended(start, "built", seconds, **fields)
        return str(output)

    def failed(self, variant: Package, log: str, *, cause: str = "", message: str = "") -> Ended:
        start = self.started(variant, LAST)
        self.log(start, log)
        return self.ended(start, "failed", 600.0, cause=cause, message=message)

    def log(self, start: Started, text: str) -> None:
        path = self.root / start.log
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def tested(self, variant: Package, output: str, **fields: Any) -> None:
        common = self.common(variant, LAST + timedelta(hours=3))
        Ledger(self.root).append(Tested(**common, output=output, **fields))

    def append(self, event: AnyEvent) -> None:
        Ledger(self.root).append(event)

    def common(self, variant: Package, at: datetime) -> dict[str, Any]:
        return {
            "at": at.isoformat(timespec="milliseconds"),
            "release": variant.release_name,
            "variant": variant.short_id,
            "digest": evidence.recipe_digest(self.root, variant),
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

    def board(self, *ids: str) -> tuple[dict[str, Any], str]:
        """The JSON of the board with its rows by id, and the page."""
        states = package_states(self.root, [self.packages[id_] for id_ in ids]).values()
        data = board.json_bytes(board_document(self.root, states))
        document: dict[str, Any] = json.loads(data)
        document["by_id"] = {row["variant"]: row for row in document["variants"]}
        return document, board.page(PROJECT, data, "board.json")

    def state(self, id_: str) -> PackageState:
        return package_states(self.root, [self.packages[id_]])[id_]

    def row(self, id_: str) -> dict[str, Any]:
        row: dict[str, Any] = self.board(id_)[0]["by_id"][id_]
        return row


@pytest.fixture
def checkout(matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    found = Checkout(tmp_path, matrix)
    monkeypatch.setenv("NIX_STORE_DIR", str(found.store))
    folders = os.environ["PATH"].split(":")
    kept = [folder for folder in folders if not (Path(folder) / "nix-store").exists()]
    monkeypatch.setenv("PATH", ":".join(kept))
    return found


def believable(root: Path, store: Path) -> None:
    """Give a checkout the ledger of a fleet in the middle of its work, for the pictures in docs."""
    matrix, oom = SampleFleet(root), "nvcc error : 'cicc' died due to signal 9 (Kill signal)"
    variants = [v for v in matrix_reader.load(root).variants if not v.impossible]
    report = ".build-pytorch/reports/smoke-sample.json"
    (root / report).parent.mkdir(parents=True)
    gpu = {"index": 0, "name": "NVIDIA H100 80GB HBM3", "capability": "9.0"}
    cuda = {"device": 0, "available": True, "devices": [gpu]}
    (root / report).write_bytes(msgspec.json.encode({"script": {"cuda": cuda}}))
    for number, variant in enumerate(variants):
        if number % 9 == 7:
            continue
        if number in {4, 5}:
            begun = datetime.now(UTC) - timedelta(minutes=47)
            start = matrix.started(variant, begun, pid=1)
            steps = (f"[{n}/7421] Building CUDA object f{n}.cu.o\n" for n in range(1, 2600))
            matrix.log(start, "".join(steps))
        elif number in {2, 17}:
            matrix.failed(variant, f"$ nix-build x\n{oom}\n", cause="out-of-memory", message=oom)
        else:
            seconds = 3000.0 if variant.gpu is None else 9000.0 + 410 * (number % 7)
            output = matrix.built(variant, store, seconds=seconds)
            tests = {0: ("inspect", "smoke"), 1: ("inspect",)}.get(number % 3, ())
            for kind in tests:
                matrix.tested(variant, output, by=kind, outcome="passed", report=report)
            if number % 6 == 0:
                event = Published(
                    **matrix.common(variant, LAST), output=output, organization="acme"
                )
                matrix.append(event)


def grown(root: Path, releases: int) -> None:
    """Give a checkout so many copies of its first release, with their recipes and no docs."""
    document = tomlkit.parse((root / "matrix.toml").read_text())
    table: Any = document["release"]
    name, first = next(iter(table.items()))
    document = tomlkit.parse(document.as_string())
    for key in ("cleanup", "manual", "companion"):
        first.pop(key, None)
    text = tomlkit.dumps({"release": {name: first}})
    package, folder, pname = first["names"]["package"], first["folder"], first["names"]["pname"]
    added = [
        text.replace(f"release.{name}", f"release.{name}_{number}")
        .replace(f'"{package}"', f'"{package}-r{number}"')
        .replace(f'"{pname}"', f'"{pname}-r{number}"')
        .replace(f'"{folder}"', f'"r{number}/{folder}"')
        .replace(first["notes"], f"docs/notes-{number}.md")
        for number in range(1, releases)
    ]
    (root / "matrix.toml").write_text("\n".join([document.as_string(), *added]))
    matrix = matrix_reader.load(root)
    write_recipes(root, matrix)


def large_ledger(root: Path, lines: int) -> None:
    """Write a ledger of so many lines about all variants, as years of builds leave it."""
    variants = matrix_reader.load(root).variants
    matrix, encoder = SampleFleet(root), msgspec.json.Encoder()
    events: list[bytes] = []
    for number in range(lines // 2):
        variant = variants[number % len(variants)]
        if number < len(variants):
            matrix.commons[variant.package] = matrix.common(variant, LAST)
        at = (LAST - timedelta(minutes=lines - number)).isoformat(timespec="milliseconds")
        common = matrix.commons[variant.package] | {"at": at}
        attempt = f"20261120T120000.000-999999999-{number}"
        is_good = number % 3 > 0
        start = Started(**common, attempt=attempt, backend="nix", cores=8, log="")
        end = Ended(
            **common,
            attempt=attempt,
            outcome="built" if is_good else "failed",
            seconds=3600.0 + number % 5000,
            cause="" if is_good else "out-of-memory",
            message="" if is_good else "nvcc error : 'cicc' died due to signal 9 (Kill signal)",
            steps=7421,
            peak_memory=(5 << 30) + number,
        )
        events += [encoder.encode(start), encoder.encode(end)]
    path = root / ".build-pytorch/ledger.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\n".join(events) + b"\n")
