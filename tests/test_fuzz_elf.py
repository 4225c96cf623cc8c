"""Readers of libraries never raise; `nox -s fuzz` tries more."""

from __future__ import annotations

from fuzz import elf


def test_changed_libraries_are_read_or_refused() -> None:
    counts = elf.run(seed=1, count=120)
    assert counts["files"] == 120
    for part in ("files", "instructions"):
        assert counts[f"passed in {part}"], counts
        assert counts[f"failed in {part}"] + counts[f"skipped in {part}"], counts
