"""Read which PyTorch each companion is for, from package metadata, into companion_versions.toml.

`python scripts/companion_versions.py` runs it. pip reads the metadata alone, a few KB of each. What
they do not state stays as the file has it, and is printed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import tomlkit
from packaging.requirements import Requirement

from build_pytorch.base import files, process
from build_pytorch.base.console import write
from build_pytorch.base.errors import EXIT_OK, ToolError
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.versions import numbers, order
from build_pytorch.tasks.command import guarded

FILE: Final = "companion_versions.toml"
COMPANIONS: Final = Path(known_hardware.__file__).with_name(FILE)
_PIP: Final = (sys.executable, "-m", "pip")
_WHEEL: Final = ("--only-binary", ":all:", "--python-version", "3.12")
_PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux2014_x86_64")
_ROW: Final = r"(?m)^\| *`([0-9.]+)` *\| *`(>=)?([0-9.]+)` *\|"
"""A row of the table in TorchCodec's description: its version, and that of PyTorch."""


def versions_of(package: str, oldest: str) -> list[str]:
    """Return the final versions of a package from one on, the oldest first. Raises ToolError."""
    # pip 23 has no --json here; the line is the same in pip 26.
    said = process.output_of([*_PIP, "index", "versions", package, *_WHEEL])
    listed = re.search("(?m)^Available versions: (.*)$", said)
    found = (v for v in (listed[1].split(", ") if listed else ()) if re.fullmatch("[0-9.]+", v))
    return sorted((v for v in found if numbers(v) >= numbers(oldest)), key=order)


def metadata_of(package: str, version: str) -> dict[str, Any]:
    """Return the metadata of a wheel, which is not downloaded itself. Raises ToolError."""
    argv = [*_PIP, "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    argv += ["--target", "."]  # pip 23 wants it for another platform; nothing is written
    argv += [*_WHEEL, *(word for name in _PLATFORMS for word in ("--platform", name))]
    report = process.output_of([*argv, "--report", "-", f"{package}=={version}"])
    (installed,) = json.loads(report)["install"]
    return dict(installed["metadata"])


def required(metadata: Mapping[str, Any], package: str) -> str:
    """Return the bounds that metadata state for a package, such as ==2.10.0; "" if none."""
    found = map(Requirement, metadata.get("requires_dist") or ())
    return next((str(each.specifier) for each in found if each.name == package), "")


def table_in(description: str) -> dict[str, str]:
    """Return the bounds of PyTorch by minor version, as a table in a description has them.

    A minor version of PyTorch, such as 2.10, stands for all of its patches.
    """
    found = {}
    for version, operator, torch in re.findall(_ROW, description):
        major, minor = numbers(torch)[:2]
        found[version] = f">={torch}" if operator else f">={torch}, <{major}.{minor + 1}"
    return found


def companion_rows(package: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the bounds of PyTorch by version of a companion. Raises ToolError."""
    rows: dict[str, str] = {}
    table: dict[str, str] = {}
    for version in reversed(versions_of(package, next(iter(known)))):
        metadata = metadata_of(package, version)
        table = table or table_in(metadata.get("description") or "")
        stated = required(metadata, "torch") or table.get(".".join(version.split(".")[:2]))
        if found := stated or known.get(version):
            rows[version] = found
        if not stated:
            write(sys.stderr, f"{package} {version}: states no PyTorch; kept: {found or 'none'}\n")
    return dict(reversed(rows.items()))


def triton_rows(known: Mapping[str, str], oldest: str) -> dict[str, str]:
    """Return the bounds of PyTorch by version of Triton, which PyTorch's metadata name."""
    users: dict[str, list[str]] = {}
    for torch in versions_of("torch", oldest):
        if bounds := required(metadata_of("torch", torch), "triton"):
            users.setdefault(re.sub("[^0-9.]", "", bounds), []).append(torch)
    rows = {
        version: f"=={torches[0]}" if len(torches) == 1 else f">={torches[0]}, <={torches[-1]}"
        for version, torches in users.items()
    }
    return rows or dict(known)


def file_text(old: str, rows: Mapping[str, Mapping[str, str]], today: str) -> str:
    """Return the text of the file with other versions of some packages; its comments stay."""
    document: Any = tomlkit.parse(old)
    for package, versions in rows.items():
        table = document["versions"][package]
        if dict(table["torch"]) != dict(versions):
            table["torch"] = tomlkit.item(dict(versions))
        table["checked"] = today
    return re.sub("\n{3,}", "\n\n", tomlkit.dumps(document).rstrip()) + "\n"


def main(argv: Iterable[str] | None = None) -> int:
    """Read the named packages again, by default all; the file is written once, at the end."""
    path = COMPANIONS
    document = tomlkit.parse(files.read_named(path).decode()).unwrap()
    known = {name: each["torch"] for name, each in document["versions"].items()}
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(known)}; by default all")
    wanted = parser.parse_args(None if argv is None else list(argv)).packages or list(known)
    if unknown := set(wanted) - known.keys():
        raise ToolError(f"{min(unknown)}: unknown; {FILE} has {', '.join(known)}")
    rows = {}
    for package in wanted:
        write(sys.stderr, f"{package}: reading metadata\n")
        if package == "triton":  # TorchAudio has the versions of PyTorch
            rows[package] = triton_rows(known[package], next(iter(known["torchaudio"])))
        else:
            rows[package] = companion_rows(package, known[package])
    text = file_text(files.read_named(path).decode(), rows, f"{dt.datetime.now(dt.UTC).date()}")
    files.write_all(path.parent, {path.name: text.encode()})
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(guarded(main))
