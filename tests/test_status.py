"""`invoke status` and `show`: what failed, what runs, what is next; and the states of packages."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import PROJECT, WHOLE, Project, copied_project, error_line, unfolded
from msgspec.structs import replace
from sample_fleet import LAST, Checkout, SampleFleet

from build_pytorch.base.errors import WriteError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import ledger
from build_pytorch.results.package_state import PackageState, chosen_packages, package_states
from build_pytorch.tasks.status import _next_command

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
            sample.ended(variant, "failed", 60.0, cause="disk-full", where="ssh://ci-2")
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
    assert len(lines) <= 15
    assert all(len(line) <= 80 for line in lines)
    counts, *causes = re.split(r" (?=building    |failed      )", unfolded_table(lines[:-1]))
    assert re.fullmatch(
        r"44 packages: 1 building, 7 failed, 3 tested, 8 impossible-host, \d+ not built", counts
    )
    wanted = [
        r"building    sm\S+: no result",
        r"failed      sm\S+ and 2 more: fatal error: fmt/format.h: No such file",  # places differ
        r"failed      sm\S+ and 1 more: out-of-memory: .*\.\.\.",
        r"failed      sm\S+: disk-full: the disk is full",
        r"failed      sm\S+: inspection: no cuDNN",
    ]
    assert len(causes) == len(wanted)
    assert all(re.fullmatch(*pair) for pair in zip(wanted, causes, strict=True)), causes
    assert re.fullmatch(r"next: invoke diagnose sm\S+", lines[-1])


def unfolded_table(lines: Sequence[str]) -> str:
    """Lines of a table without the line breaks inside of its rows."""
    return " ".join(line.strip() for line in lines)


def test_the_first_screen_is_short_whatever_failed(project: Project) -> None:
    sample, variants = SampleFleet(project.root), matrix_reader.load(project.root).variants
    (project.root / variants[0].path).unlink()
    for number, variant in enumerate(variants[:31]):
        sample.failed(variant, "x", message=f"x.cpp:1: error: number {number // 2} {'x' * 300}")
    lines = project.invoke("status").stdout.splitlines()
    assert len(lines) <= 15
    assert all(len(line) <= 80 for line in lines)
    missing = f"  failed      {variants[0].id}: recipe missing or unreadable; run `invoke all`"
    assert {missing, "  12 more causes: `invoke status --packages all`"} <= set(lines)


OUTPUT = "/nix/store/x-pytorch"
BUILT = {"event": "ended", "outcome": "built", "outputs": (OUTPUT,)}
BEGUN = {"event": "started", "attempt": "20261120T120000.000-999999999-1"}
SENT = {"event": "published", "output": OUTPUT, "organization": "acme"}
BLIND = {**SENT, "without_evidence": True}
SMOKE = {"event": "tested", "by": "smoke", "outcome": "passed"}
FAILED = {"event": "ended", "outcome": "failed"}


@pytest.mark.parametrize(
    ("events", "link", "wanted"),
    [
        ([], "", "not built; ; build cpu-avx2"),
        ([], OUTPUT, "outdated; built unknown; build interrupted,outdated"),
        ([BUILT], OUTPUT, "built; built yes; inspect built"),
        ([BUILT, SMOKE], OUTPUT, "tested; built yes, tested passed; publish tested"),
        ([BUILT, {**SMOKE, "outcome": "failed"}], OUTPUT,
         "failed; built yes, tested failed; show cpu-avx2"),
        ([BEGUN], "", "interrupted; built interrupted; build interrupted,outdated"),
        ([{**FAILED, "outcome": "interrupted"}], "",
         "interrupted; built interrupted; build interrupted,outdated"),
        ([FAILED], "", "failed; built failed; diagnose cpu-avx2"),
        ([FAILED, BUILT], OUTPUT, "built; built yes; inspect built"),
        # A result is of the recipe that the ledger names.
        ([BUILT, BLIND], OUTPUT, "published; built yes, published no evidence; recommend"),
        ([{**it, "digest": "sha256:2"} for it in (BUILT, SMOKE, BLIND)], OUTPUT,
         "outdated; built outdated; build interrupted,outdated"),
        # What is published counts where the result is not here.
        ([BUILT], "", "not built; ; build cpu-avx2"),
        ([BUILT, SENT, SMOKE], "",
         "published; built elsewhere, tested passed, published yes; recommend"),
        ([{**it, "digest": "sha256:2"} for it in (BUILT, SENT)], "",
         "not built; ; build cpu-avx2"),
    ],
)  # fmt: skip
def test_events_decide_the_state_of_a_package_and_what_is_next(
    matrix: Matrix, events: list[dict[str, Any]], link: str, wanted: str
) -> None:
    package, digest = next(p for p in matrix.packages if p.id == "cpu-avx2"), "sha256:1"
    of_package = [ledger.event_of(package, **{"digest": digest, **event}) for event in events]
    state = PackageState(package=package, digest=digest, link=link, events=tuple(of_package))
    steps = [f"{name} {mark}" for name, mark in state.steps.items() if mark != "-"]
    assert steps.pop(0) == "recipe yes"
    command = _next_command([state]).removeprefix("invoke ")
    assert f"{state.overall}; {', '.join(steps)}; {command}" == wanted
    assert bool(state.output) == (state.built == "yes"), "nothing else may be run here"
    assert state.organizations == {e.organization for e in of_package if e.digest == digest} - {""}


def test_states_are_words_among_the_patterns(fleet: Project, status: Callable[..., str]) -> None:
    """Packages that are named are listed each."""
    matrix = matrix_reader.load(fleet.root)

    def ids(patterns: str) -> set[str]:
        return {package.id for package in chosen_packages(matrix, patterns)}

    said = unfolded(status("--packages", "failed"))
    assert said.startswith("7 packages: 7 failed failed ")
    assert set(re.findall(r"\bsm\d+-\w+", said.partition(" next: ")[0])) == ids("failed")
    assert len(ids("building,tested")) == len(ids("building")) + len(ids("tested")) == 4
    assert ids("failed,cpu-avx2") == {*ids("failed"), "cpu-avx2"}
    assert ids("all") == ids("cuda13_0") >= ids("failed,not-built")
    assert (len(ids("failed")), ids("failed") & ids("not-built")) == (7, set())


@pytest.mark.parametrize("words", [("build", "failed"), ("status", "--packages", "failed")])
def test_nothing_in_a_state_is_one_line(still: Project, words: tuple[str, ...]) -> None:
    done = still.invoke(*words)
    says = "nothing to do: no package has the state failed\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, says, "")
    assert json.loads(still.invoke(*words, "--json").stdout)["packages"] == []


def test_json_has_why_when_where_and_how_long_and_diagnose_takes_the_id(
    fleet: Project, status: Callable[..., str]
) -> None:
    document = json.loads(status("--json"))
    assert sum(document["totals"].values()) == len(document["packages"]) == 44
    assert document["next"].startswith("invoke diagnose ")
    failed = [row for row in document["packages"] if row["failure"]]
    (row,) = (row for row in failed if row["failure"].get("cause") == "disk-full")
    assert (row["state"], row["reason"]) == ("failed", "disk-full: the disk is full")
    failure = row["failure"]
    assert (failure["seconds"], failure["where"]) == (60.0, "ssh://ci-2")
    assert failure["at"].startswith("2026-11-20T12:01:00")
    log, id_ = fleet.root / row["log"], row["id"]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("$ nix-build\n\tx\x1b[2J\nNo space left on device\n")
    shown = fleet.invoke("log", id_).stdout
    assert shown == log.read_text().expandtabs().replace("\x1b", "\\x1b")
    said = unfolded(fleet.invoke("diagnose", id_).stdout)
    assert f"{row['log']}: 3 lines, {id_} phase: " in said
    assert "the disk is full (disk-full)" in said
    assert f"(disk-full); {row['log']}" in unfolded(fleet.invoke("show", id_).stdout)
    shown = json.loads(fleet.invoke("show", id_, "--json").stdout)
    assert (shown["log"], shown["events"][-1]["outcome"]) == (row["log"], "failed")
    log.unlink()
    assert f"the log of {id_} was deleted" in fleet.invoke("diagnose", id_).stderr
    log.symlink_to("/etc/passwd")
    assert f"the log of {id_} was deleted" in fleet.invoke("log", id_).stderr
    assert "found 4 packages" in fleet.invoke("diagnose", "cpu-*").stderr


def test_packages_of_two_catalogs_may_have_one_name(checkout: Checkout) -> None:
    package = checkout.package("cpu-avx2")
    checkout.built(package, checkout.store)
    assert package.companion is None
    twin = replace(package, release_name="other", id="other/cpu-avx2")
    states = package_states(checkout.root, [package, twin])
    assert [state.built for state in states.values()] == ["yes", "unknown"]
    (checkout.root / package.path).write_text("another recipe")
    assert checkout.state("cpu-avx2").built == "outdated"


def test_a_ledger_that_is_no_regular_file_is_an_error_and_does_not_block(tmp_path: Path) -> None:
    book = tmp_path / ".build-pytorch/ledger.jsonl"
    book.parent.mkdir()
    os.mkfifo(book)
    with pytest.raises(WriteError, match="not a regular file"):
        ledger.read(tmp_path)


@pytest.mark.slow
def test_a_ledger_of_any_size_is_read_in_a_stream(project: Project) -> None:
    """250,000 lines, 128 MiB: nothing is lost, and `status` takes at most 6 s."""
    path = project.root / ledger.FILE
    path.parent.mkdir(exist_ok=True)
    names = [variant.short_id for variant in matrix_reader.load(project.root).variants]
    line = (
        '{{"event":"ended","at":"2026-11-20T12:00:00+00:00","release":"cuda13_0","digest":"x",'
        f'"variant":"{{}}","attempt":"x","derivation":"{"x" * 160}","outcome":"{{}}"}}}}\n'
    )
    with path.open("w") as file:
        for number in range(250_000):
            file.write(line.format(names[number % len(names)], "failed"))
        file.write("x" * (65 << 20) + "\n")
        file.write(line.format(names[0], "stopped"))
    start = time.process_time()
    document = json.loads(project.invoke("status", "--json").stdout)
    assert time.process_time() - start < 6
    assert document["skipped"] == 1
    built = [row["steps"]["built"] for row in document["packages"]]
    assert (built.count("failed"), built.count("stopped")) == (len(names) - 1, 1)


def foreign(checkout: Checkout, event: ledger.Event, **keys: object) -> None:
    """Make the last line, of this event, one of another machine, perhaps with unknown keys."""
    path = checkout.root / ledger.FILE
    lines = path.read_text().splitlines()[:-1]
    lines.append(json.dumps({**msgspec.to_builtins(event), "host": "runner-7", **keys}))
    path.write_text("".join(f"{line}\n" for line in lines))


def test_lines_of_another_machine_count_and_take_their_place_in_time(checkout: Checkout) -> None:
    """Keys of an old version are ignored; what happened here later stays the last word."""
    package = checkout.package("cpu-avx2")
    output = checkout.built(package, checkout.store)
    before, after = LAST - timedelta(days=1), LAST + timedelta(hours=3)
    foreign(checkout, checkout.add(package, "ended", before, attempt="x", outcome="failed"))
    fields = {"output": output, "by": "smoke", "outcome": "passed"}
    test = checkout.add(package, "tested", after, **fields)
    foreign(checkout, test, signed={"key": "gpu-1:A", "nar_hash": "sha256-x", "counts": {}})
    state = checkout.state("cpu-avx2")
    assert (state.overall, state.test("smoke")) == ("tested", replace(test, host="runner-7"))
    assert state.last is not None
    assert state.last.outcome == "built"


def test_the_log_of_another_machine_is_not_here_until_it_is_copied(fleet: Project) -> None:
    checkout = Checkout(fleet.root, matrix_reader.load(fleet.root))
    variant = checkout.packages["cpu-avx512bf16"]
    foreign(checkout, checkout.add(variant, "ended", attempt="a-1-1", outcome="failed"))
    path = f".build-pytorch/logs/{variant.attribute}/a-1-1.log"
    said = error_line(fleet.invoke("diagnose", variant.id))
    assert said.endswith(f"{path}: not found; the log of {variant.id} is on runner-7; copy it here")
    (fleet.root / path).parent.mkdir(parents=True)
    (fleet.root / path).write_text("the line\n")
    assert "    the line\n" in fleet.invoke("diagnose", variant.id).stdout


def test_show_has_the_recipe_and_the_rules_of_a_variant() -> None:
    """The first screen names the rules, the long one and the JSON say what they change, and why."""
    here, id_ = Project(PROJECT), "cuda12_8/sm61-avx"
    document = json.loads(here.invoke("show", id_, "--json").stdout)
    variant = next(v for v in matrix_reader.parse(WHOLE).variants if v.id == id_)
    assert [rule["id"] for rule in document["rules"]] == [r.id for r in variant.effects.rules]
    (first,) = [rule for rule in document["rules"] if rule["id"] == "no-cudnn-below-7-5"]
    assert first["effect"]["environment"] == {"USE_CUDNN": "0"}
    assert document["recipe"]["path"].endswith("cuda12_8-sm61-avx.nix")
    assert document["recipe"]["action"] == "unchanged"
    assert (document["pin"]["rev"] in WHOLE, document["events"]) == (True, [])
    short, long = here.invoke("show", id_).stdout, here.invoke("show", id_, "-v").stdout
    assert len(short.splitlines()) <= 20
    said = unfolded(long)
    assert "no-cudnn-below-7-5: USE_CUDNN=0" in said
    assert "not confirmed: the cuDNN of pin" in said
    for rule in document["rules"]:
        assert (rule["id"] in short, rule["source"] in short) == (True, False)
        assert f"{rule['reason']} ({rule['source']}, checked " in said
    assert document["pin"]["rev"] in long


def test_what_nobody_confirmed_of_nixpkgs_is_said_until_the_package_is_built() -> None:
    said = Project(PROJECT).invoke("show", "cuda13_2/sm90-avx2").stdout
    assert "its nixpkgs is not confirmed, see -v" in said
    variants = {variant.id: variant for variant in matrix_reader.parse(WHOLE).variants}
    package, path = variants["cuda13_2/sm90-avx2"], "/nix/store/x"
    built = ledger.event_of(package, "ended", digest="d", outcome="built", outputs=(path,))
    for events, doubts in (((), package.pin.doubts), ((built,), "")):
        state = PackageState(package=package, digest="d", link=path, events=events)
        assert state.doubts == doubts
