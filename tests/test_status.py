"""`invoke status`: a row for each variant, and totals."""

from __future__ import annotations

import json

from conftest import Project

from build_pytorch.base import digest
from build_pytorch.results import ledger

COLUMNS = ["recipe", "verified", "built", "smoke", "inspect", "published"]


def test_json_has_every_column_and_its_total(project: Project) -> None:
    document = json.loads(project.invoke("status", "cpu-avx2", "--json").stdout)
    (row,) = document["variants"]
    assert list(row) == [
        "variant",
        "package",
        "status",
        "reason",
        *COLUMNS,
        "output",
        "shared",
        "log",
    ]
    assert [row[column] for column in COLUMNS] == ["current", "yes", "no", "-", "-", "-"]
    assert document["totals"] == {
        "current": 1,
        "verified": 1,
        "built": 0,
        "smoke-tested": 0,
        "inspected": 0,
        "published": 0,
    }


def test_the_table_has_the_same_columns_and_notes_hosts_that_do_not_exist(
    project: Project,
) -> None:
    lines = project.invoke("status", "sm90-avx2", "sm121-avx2").stdout.splitlines()
    head, impossible, possible, reason, more, total, rest, *_ = lines  # companions follow
    assert head.split() == ["variant", *COLUMNS]
    cells = ["current", "yes", "no", "-", "-", "-"]
    assert possible.split() == ["sm90-avx2", *cells]
    assert impossible.split() == ["sm121-avx2", *cells, "[1]"]
    assert f"{reason} {more.strip()}" == (
        "[1] impossible-host: no x86_64-linux machine has SM121: "
        "GB10 (DGX Spark) on aarch64-linux only"
    )
    assert f"{total} {rest.strip()}" == (
        "2 variants: 2 current, 2 verified, 0 built, 0 smoke-tested, 0 inspected, 0 published"
    )
    (row,) = json.loads(project.invoke("status", "sm121-avx2", "--json").stdout)["variants"]
    assert row["reason"].startswith("no x86_64-linux machine has SM121: GB10 ")


def test_every_row_fits_80_columns_without_trailing_blanks(project: Project) -> None:
    lines = project.invoke("status").stdout.splitlines()
    assert len(lines) > 45
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)
    assert "\n1 variant: " in project.invoke("status", "cpu-avx2").stdout


def test_what_was_published_without_evidence_is_shown_as_such(project: Project) -> None:
    recipe = project.recipe("cpu-avx2")
    event = ledger.Published(
        at=ledger.now(),
        release="cuda13_0",
        variant="cpu-avx2",
        digest=digest.of_bytes(recipe.read_bytes()),
        without_evidence=True,
    )
    ledger.Ledger(project.root).append(event)
    document = json.loads(project.invoke("status", "cpu-avx2", "--json").stdout)
    assert document["variants"][0]["published"] == "no evidence"
    assert document["totals"]["published"] == 0
