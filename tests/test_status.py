"""`invoke status`: a row for each variant, and totals."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from conftest import Project, needs_nix
from msgspec.structs import replace
from sample_fleet import LAST, Checkout

from build_pytorch.base.errors import WriteError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.results import ledger
from build_pytorch.results.package_state import package_states

COLUMNS = ["recipe", "verified", "built", "smoke", "inspect", "published"]


TOTALS = ["current", "built", "smoke-tested", "inspected", "published"]


def test_json_has_every_column_and_its_total(still: Project) -> None:
    document = json.loads(still.invoke("status", "cpu-avx2", "--json").stdout)
    (row,) = document["variants"]
    others = ["variant", "package", "status", "reason", "output", "shared", "log", "compare"]
    assert sorted(row) == sorted([*others, *COLUMNS])
    assert [row[column] for column in COLUMNS] == ["current", "-", "no", "-", "-", "-"]
    assert document["totals"] == {name: int(name == "current") for name in TOTALS}


@needs_nix
def test_verification_runs_where_it_is_asked_for(project: Project) -> None:
    project.edit(".flox/pkgs/pytorch-python313-cpu-avx2.nix", "-mavx2", "-mavx")
    done = project.invoke("status", "cpu-avx2", "cpu-avx512", "--verify")
    _, broken, good, total, more, *_ = done.stdout.splitlines()
    assert broken.split()[1] == "edited"
    assert re.fullmatch(r"\d+ errors?", " ".join(broken.split()[2:-4]))
    assert good.split()[2] == "yes"
    assert f"{total} {more.strip()}".startswith("2 variants: 1 current, 1 verified, 0 built")


def test_the_table_fits_80_columns_and_notes_hosts_that_do_not_exist(still: Project) -> None:
    lines = still.invoke("status").stdout.splitlines()
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["variant"] == COLUMNS
    cells = ["current", "-", "no", "-", "-", "-"]
    assert rows["sm90-avx2"] == cells
    assert rows["sm121-avx2"] == [*cells, "[1]"]
    said = " ".join(" ".join(lines).split())
    assert (
        "[1] impossible-host: no x86_64-linux machine has SM121: "
        "GB10 (DGX Spark) on aarch64-linux only"
    ) in said
    assert "44 variants: 44 current, 0 built, 0 smoke-tested, 0 inspected, 0 published" in said


@pytest.mark.parametrize(
    ("outcomes", "smoke", "evidence"),
    [
        ([], "-", "no smoke test or inspection passed yet"),
        (["failed"], "failed", "its smoke test failed: see its report"),
        (["passed", "failed"], "failed", "its smoke test failed: see its report"),
        (["compatible"], "compatible", "it ran only on a GPU of another architecture"),
        (["skipped"], "skipped", "no smoke test or inspection passed yet"),
        (["failed", "passed"], "passed", ""),
        (["passed", "skipped"], "passed", ""),
    ],
)
def test_the_last_verdict_counts_and_no_verdict_takes_none_back(
    checkout: Checkout, outcomes: list[ledger.TestOutcome], smoke: str, evidence: str
) -> None:
    output = checkout.built(checkout.package("cpu-avx2"), checkout.store)
    for outcome in outcomes:
        checkout.tested(checkout.package("cpu-avx2"), output, by="smoke", outcome=outcome)
    state = checkout.state("cpu-avx2")
    assert (state.built, state.smoke, state.missing_evidence) == ("yes", smoke, evidence)


def test_a_result_is_of_the_recipe_that_the_ledger_names(checkout: Checkout) -> None:
    package = checkout.package("cpu-avx2")
    output = checkout.built(package, checkout.store)
    checkout.append(
        ledger.Published(**checkout.common(package, LAST), output=output, without_evidence=True)
    )
    state = checkout.state("cpu-avx2")
    assert (state.built, state.published, state.overall) == ("yes", "no evidence", "published")
    assert not state.published.is_done
    (checkout.root / package.path).write_text("another recipe")
    state = checkout.state("cpu-avx2")
    assert (state.built, state.stale, state.overall) == ("stale", output, "outdated")
    assert (state.output, state.published) == ("", "-")
    (checkout.root / ".build-pytorch/ledger.jsonl").unlink()
    state = checkout.state("cpu-avx2")
    assert (state.built, state.unknown) == ("unknown", output)


def test_packages_of_one_name_in_two_catalogs_have_states_of_their_own(checkout: Checkout) -> None:
    variant = checkout.package("cpu-avx2")
    assert isinstance(variant, Variant)
    twin = replace(variant, release_name="other", is_qualified=True)
    checkout.built(variant, checkout.store)
    states = package_states(checkout.root, [variant, twin])
    assert list(states) == ["cpu-avx2", "other/cpu-avx2"]
    assert (states["cpu-avx2"].built, states["other/cpu-avx2"].built) == ("yes", "unknown")


def test_a_ledger_that_is_no_regular_file_is_an_error_and_does_not_block(tmp_path: Path) -> None:
    book = tmp_path / ".build-pytorch/ledger.jsonl"
    book.parent.mkdir()
    os.mkfifo(book)
    with pytest.raises(WriteError, match="not a regular file"):
        list(ledger.Ledger(tmp_path).events())


@pytest.mark.slow
def test_a_ledger_of_any_size_is_read_in_a_stream(project: Project) -> None:
    """250,000 lines, 70 MiB: nothing is lost, and `status` takes at most 3 s on a quiet machine."""
    path = project.root / ".build-pytorch/ledger.jsonl"
    path.parent.mkdir(exist_ok=True)
    variants = [variant.short_id for variant in matrix_reader.load(project.root).variants]
    with path.open("w") as file:
        for number in range(125_000):
            common = (
                f'"at":"2026-11-20T12:00:00+00:00","release":"cuda13_0","digest":"{"ab" * 32}",'
                f'"variant":"{variants[number % len(variants)]}","attempt":"x-{number}"'
            )
            file.write(
                f'{{"event":"started",{common},"backend":"nix","derivation":"{"x" * 100}"}}\n'
            )
            more = f'"outcome":"failed","seconds":7200,"message":"{"x" * 100}"'
            file.write(f'{{"event":"ended",{common},{more}}}\n')
        file.write("x" * (65 << 20) + "\n")
        file.write(f'{{"event":"ended",{common},"outcome":"stopped","seconds":1}}\n')
    assert path.stat().st_size > 128 << 20
    start = time.process_time()
    document = json.loads(project.invoke("status", "--json").stdout)
    assert time.process_time() - start < 6
    built = [row["built"] for row in document["variants"]]
    assert (built.count("failed"), built.count("stopped")) == (len(variants) - 1, 1)
