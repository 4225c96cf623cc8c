"""`invoke status`: what failed, what runs, what is next; and the states of packages."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Project, copied_project, error_line, unfolded
from msgspec.structs import replace
from sample_fleet import LAST, Checkout, SampleFleet

from build_pytorch.base.errors import WriteError
from build_pytorch.matrix import matrix_reader
from build_pytorch.results import ledger
from build_pytorch.results.package_selection import chosen_packages
from build_pytorch.results.package_state import package_states

MEMORY = "nvcc error : 'cicc' died due to signal 9 (Kill signal)"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A fleet with failures of three causes, and a build that runs.

    There is no Nix, so every path in the store is valid.
    """
    project = copied_project(tmp_path_factory.mktemp("fleet") / "project")
    sample, store = SampleFleet(project.root), project.root / "store"
    variants = [v for v in matrix_reader.load(project.root).variants if not v.impossible]
    for number, variant in enumerate(variants[:12]):
        if number < 3:
            other = "/source/aten/x.cu(7): " if number else "/build/source/c10/util/env.cpp:3:10: "
            sample.failed(variant, "x", message=f"{other}fatal error: fmt/format.h: No such file")
        elif number < 5:
            sample.failed(variant, "x", cause="out-of-memory", message=MEMORY)
        elif number == 5:
            start = sample.started(variant, LAST)
            sample.ended(start, "failed", 60.0, cause="disk-full", where="ssh://ci-2")
        elif number == 6:
            sample.started(variant, datetime.now(UTC), pid=os.getpid())
        elif number > 7:
            output = sample.built(variant, store, seconds=100.0 * number)
            outcome: ledger.TestOutcome = "failed" if number == 8 else "passed"
            sample.tested(variant, output, by="inspect", outcome=outcome, reason="no cuDNN")
    return project


@pytest.fixture
def status(fleet: Project, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What `invoke status` prints."""
    monkeypatch.setenv("NIX_STORE_DIR", str(fleet.root / "store"))
    monkeypatch.setenv("PATH", "")

    def run(*words: str) -> str:
        return fleet.invoke("status", *words).stdout

    return run


def test_the_first_screen_has_counts_causes_what_runs_and_what_is_next(
    status: Callable[..., str],
) -> None:
    lines = status().splitlines()
    assert len(lines) <= 12
    assert all(len(line) <= 80 for line in lines)
    said = "\n".join(lines)
    counts = unfolded(said).partition(" building 1 ")[0]
    assert re.fullmatch(
        r"44 packages: 1 building, 7 failed, 3 tested, 8 impossible-host, \d+ not built", counts
    )
    assert "  failed        3  fatal error: fmt/format.h: No such file\n" in said, "places differ"
    assert re.search(r"failed +2  out-of-memory: .*\n +sm\d+", said)
    assert re.search(r"failed +1  disk-full: the disk is full\n +sm\d+", said)
    assert re.search(r"failed +1  inspection: no cuDNN\n +sm\d+", said)
    assert re.search(r"\n  building +1  sm\d+-\S+\n", said)
    assert re.fullmatch(r"next: invoke diagnose sm\S+", lines[-1])


def test_the_first_screen_is_short_whatever_failed(project: Project) -> None:
    sample = SampleFleet(project.root)
    for number, variant in enumerate(matrix_reader.load(project.root).variants[:30]):
        sample.failed(variant, "x", message=f"x.cpp:1: error: number {number // 2} {'x' * 300}")
    lines = project.invoke("status").stdout.splitlines()
    assert len(lines) <= 15
    assert all(len(line) <= 80 for line in lines)
    assert "  22 more, of other causes: `invoke status --packages all`" in lines


def test_a_missing_recipe_is_named_and_comes_first(project: Project) -> None:
    variant = matrix_reader.load(project.root).variants[-1]
    SampleFleet(project.root).failed(variant, "x", message="x.cpp:1: error: y")
    (project.root / variant.path).unlink()
    said = unfolded(project.invoke("status").stdout)
    assert f"recipe missing or unreadable: {variant.path}" in said
    assert said.endswith("next: invoke all")


@pytest.mark.parametrize(
    ("outcome", "command"),
    [
        ("passed", "publish tested"),
        ("", "inspect built"),
        ("failed", "show cpu-avx2"),
        ("interrupted", "build interrupted,outdated"),
    ],
)
def test_what_is_next_depends_on_the_least_advanced(
    project: Project, monkeypatch: pytest.MonkeyPatch, outcome: Any, command: str
) -> None:
    monkeypatch.setenv("NIX_STORE_DIR", str(project.root / "store"))
    monkeypatch.setenv("PATH", "")
    sample = SampleFleet(project.root)
    package = next(v for v in matrix_reader.load(project.root).variants if v.id == "cpu-avx2")
    if outcome == "interrupted":
        sample.ended(sample.started(package, LAST), outcome, 1.0)
    else:
        output = sample.built(package, project.root / "store")
    if outcome in {"passed", "failed"}:
        sample.tested(package, output, by="smoke", outcome=outcome)
    assert json.loads(project.invoke("status", "--json").stdout)["next"] == f"invoke {command}"


def test_named_packages_are_listed_each(status: Callable[..., str]) -> None:
    head, *rows, _ = status("--packages", "failed").splitlines()
    assert head == "7 packages: 7 failed"
    names = [row.split()[1] for row in rows if row.startswith("  failed ")]
    assert (len(names), len(set(names))) == (7, 7)


def test_states_are_words_among_the_patterns(status: Callable[..., str]) -> None:
    def ids(packages: str) -> list[str]:
        return [
            row["id"] for row in json.loads(status("--packages", packages, "--json"))["packages"]
        ]

    assert ids("sm120-avx512, sm89-avx2") == ["sm120-avx512", "sm89-avx2"]
    assert sorted(ids("building,tested")) == sorted([*ids("building"), *ids("tested")])
    assert set(ids("failed,cpu-avx2")) == {*ids("failed"), "cpu-avx2"}
    assert len(ids("all")) == len(ids("cuda13_0")) == 44


@pytest.mark.parametrize(
    ("packages", "says"),
    [
        ("sm90-avx21", 'no package matches "sm90-avx21"; did you mean "sm90-avx2"?'),
        ("cuda13_1", 'did you mean "cuda13_0"?'),
        (",", 'found "," for packages'),
    ],
)
def test_a_wrong_selection_is_an_error(still: Project, packages: str, says: str) -> None:
    done = still.invoke("status", "--packages", packages)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "says", "rows"),
    [
        (("build", "failed"), "nothing to do: no package has the state failed", "variants"),
        (("smoke", "tested"), "nothing to do: no package has the state tested", "variants"),
        (("inspect", "tested"), "nothing to do: no package has the state tested", "variants"),
        (("status", "--packages", "failed"), "no package has the state failed", "packages"),
    ],
)
def test_nothing_in_a_state_is_one_line(
    still: Project, words: tuple[str, ...], says: str, rows: str
) -> None:
    done = still.invoke(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{says}\n", "")
    assert json.loads(still.invoke(*words, "--json").stdout)[rows] == []


@pytest.mark.usefixtures("status")
def test_build_takes_what_failed_or_is_not_built(fleet: Project) -> None:
    def ids(patterns: str) -> set[str]:
        return {p.id for p in chosen_packages(matrix_reader.load(fleet.root), patterns)}

    failed, not_built = ids("failed"), ids("not-built")
    assert (len(failed), failed & not_built) == (7, set())
    assert ids("failed,not-built") == failed | not_built


def named(document: dict[str, Any], cause: str) -> dict[str, Any]:
    """The one row with a cause of its failure."""
    failed = [row for row in document["packages"] if row["failure"]]
    (row,) = (row for row in failed if row["failure"].get("cause") == cause)
    return dict(row)


def test_json_has_why_when_where_and_how_long(status: Callable[..., str]) -> None:
    document = json.loads(status("--json"))
    row = named(document, "disk-full")
    assert (row["state"], row["reason"]) == ("failed", "disk-full: the disk is full")
    failure = row["failure"]
    assert (failure["seconds"], failure["where"]) == (60.0, "ssh://ci-2")
    assert failure["at"].startswith("2026-11-20T12:01:00")
    assert row["log"].startswith(".build-pytorch/logs/")
    assert sum(document["totals"].values()) == len(document["packages"]) == 44
    assert document["next"].startswith("invoke diagnose ")


def test_log_and_diagnose_take_ids(fleet: Project, status: Callable[..., str]) -> None:
    row = named(json.loads(status("--json")), "disk-full")
    log, id_ = fleet.root / row["log"], row["id"]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("$ nix-build\n\tx\x1b[2J\nNo space left on device\n")
    shown = fleet.invoke("log", id_).stdout
    assert shown == "$ nix-build\n        x\\x1b[2J\nNo space left on device\n"
    said = unfolded(fleet.invoke("diagnose", id_).stdout)
    assert f"3 lines, {id_} phase: " in said
    assert "the disk is full (disk-full)" in said
    log.unlink()
    assert f"the log of {id_} was deleted" in fleet.invoke("log", id_).stderr
    assert "cpu-avx512: the ledger has no build" in fleet.invoke("log", "cpu-avx512").stderr
    assert "required positional" in fleet.invoke("diagnose").stderr
    assert "found 4 packages" in fleet.invoke("log", "cpu-*").stderr


def test_a_result_is_of_the_recipe_that_the_ledger_names(checkout: Checkout) -> None:
    package = checkout.package("cpu-avx2")
    output = checkout.built(package, checkout.store)
    common = checkout.common(package, LAST)
    blind = ledger.Event(event="published", **common, output=output, without_evidence=True)
    checkout.append(blind)
    state = checkout.state("cpu-avx2")
    steps = state.steps
    assert (steps["built"], steps["published"], state.overall) == (
        "yes",
        "no evidence",
        "published",
    )
    assert package.companion is None
    twin = replace(package, release_name="other", is_qualified=True)
    states = package_states(checkout.root, [package, twin])
    assert {id_: s.built for id_, s in states.items()} == {
        "cpu-avx2": "yes",
        "other/cpu-avx2": "unknown",
    }, "packages of one name in two catalogs have states of their own"
    (checkout.root / package.path).write_text("another recipe")
    state = checkout.state("cpu-avx2")
    assert (state.built, state.link, state.overall) == ("outdated", output, "outdated")
    assert (state.output, state.steps["published"]) == ("", "-")
    (checkout.root / ".build-pytorch/ledger.jsonl").unlink()
    state = checkout.state("cpu-avx2")
    assert (state.built, state.link) == ("unknown", output)


def test_a_ledger_that_is_no_regular_file_is_an_error_and_does_not_block(tmp_path: Path) -> None:
    book = tmp_path / ".build-pytorch/ledger.jsonl"
    book.parent.mkdir()
    os.mkfifo(book)
    with pytest.raises(WriteError, match="not a regular file"):
        ledger.read(tmp_path)


@pytest.mark.slow
def test_a_ledger_of_any_size_is_read_in_a_stream(project: Project) -> None:
    """250,000 lines, 128 MiB: nothing is lost, and `status` takes at most 6 s."""
    path = project.root / ".build-pytorch/ledger.jsonl"
    path.parent.mkdir(exist_ok=True)
    names = [variant.short_id for variant in matrix_reader.load(project.root).variants]
    line = (
        '{{"event":"{}","at":"2026-11-20T12:00:00+00:00","release":"cuda13_0","digest":"x",'
        '"variant":"{}","attempt":"x-{}","seconds":7200,{}}}\n'
    )
    with path.open("w") as file:
        for number in range(125_000):
            name, text = names[number % len(names)], f'"derivation":"{"x" * 160}"'
            file.write(line.format("started", name, number, f'"backend":"nix",{text}'))
            file.write(line.format("ended", name, number, f'"outcome":"failed",{text}'))
        file.write("x" * (65 << 20) + "\n")
        file.write(line.format("ended", name, number, '"outcome":"stopped"'))
    start = time.process_time()
    document = json.loads(project.invoke("status", "--json").stdout)
    assert time.process_time() - start < 6
    assert document["skipped"] == 1
    built = [row["steps"]["built"] for row in document["packages"]]
    assert (built.count("failed"), built.count("stopped")) == (len(names) - 1, 1)


def test_a_published_result_counts_where_it_is_not_here(checkout: Checkout) -> None:
    package, output = checkout.package("cpu-avx2"), "/nix/store/x-pytorch"
    checkout.ended(checkout.started(package, LAST), "built", 60.0, outputs=(output,))
    assert checkout.state("cpu-avx2").overall == "not built"
    common = checkout.common(package, LAST + timedelta(hours=1))
    checkout.append(ledger.Event(event="published", **common, output=output, organization="acme"))
    smoke = ledger.Event(event="tested", **common, output=output, by="smoke", outcome="passed")
    checkout.append(smoke)
    found = checkout.state("cpu-avx2")
    assert (found.overall, found.organizations) == ("published", {"acme"})
    assert (found.built, found.steps["tested"]) == ("elsewhere", "passed")
    assert found.output == "", "nothing to run here"
    (checkout.root / package.path).write_text("another recipe")
    assert checkout.state("cpu-avx2").overall == "not built"


# --- lines of other machines, which `cat` or Git put into the ledger ---


def foreign(checkout: Checkout, event: ledger.Event, **keys: object) -> None:
    """Add a line as another machine wrote it, perhaps with keys that this version has not."""
    line = msgspec.to_builtins(replace(event, host="runner-7")) | keys
    path = checkout.root / ".build-pytorch/ledger.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_a_test_of_another_machine_counts_and_the_signature_of_an_old_line_is_ignored(
    checkout: Checkout,
) -> None:
    package = checkout.package("cpu-avx2")
    output = checkout.built(package, checkout.store)
    common = checkout.common(package, LAST + timedelta(hours=3))
    test = ledger.Event(event="tested", **common, output=output, by="smoke", outcome="passed")
    foreign(checkout, test, signed={"key": "gpu-1:A", "nar_hash": "sha256-x", "counts": {}})
    state = checkout.state("cpu-avx2")
    assert (state.overall, state.test("smoke")) == ("tested", replace(test, host="runner-7"))


def test_a_line_of_another_machine_takes_its_place_in_time(checkout: Checkout) -> None:
    """What happened here later stays the last word."""
    package = checkout.package("cpu-avx2")
    checkout.ended(checkout.started(package, LAST), "interrupted", 1.0)
    common = checkout.common(package, LAST - timedelta(days=1))
    failed = ledger.Event(event="ended", **common, attempt="x", outcome="failed", seconds=1.0)
    foreign(checkout, failed)
    assert checkout.state("cpu-avx2").overall == "interrupted"


def test_the_log_of_another_machine_is_not_here_until_it_is_copied(fleet: Project) -> None:
    variant = next(v for v in matrix_reader.load(fleet.root).variants if v.id == "cpu-avx512bf16")
    checkout = Checkout(fleet.root, matrix_reader.load(fleet.root))
    common = checkout.common(variant, LAST)
    failed = ledger.Event(event="ended", **common, attempt="a-1-1", outcome="failed", seconds=1.0)
    foreign(checkout, failed)
    path = f".build-pytorch/logs/{variant.attribute}/a-1-1.log"
    said = error_line(fleet.invoke("log", variant.id))
    assert said.endswith(f"{path}: not found; the log of {variant.id} is on runner-7; copy it here")
    (fleet.root / path).parent.mkdir(parents=True)
    (fleet.root / path).write_text("the line\n")
    assert fleet.invoke("log", variant.id).stdout == "the line\n"
