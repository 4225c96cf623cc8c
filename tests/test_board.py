"""`invoke board`: one page and one JSON with the state of every variant. Needs no browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from conftest import Project, error_line
from sample_fleet import LAST, SampleFleet
from world import wait_until

from build_pytorch.build.log_rules import RULES
from build_pytorch.generate import board
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.results import ledger

HOSTILE = "</script></style><script>document.title='x'</script><b onclick=x>\x1b[31m\u202e&\x00"


@pytest.fixture
def variants(project: Project) -> dict[str, Variant]:
    """The variants of the copy by id."""
    return {v.id: v for v in matrix_reader.load(project.root / "matrix.toml").variants}


@pytest.fixture
def fleet_of(project: Project) -> SampleFleet:
    return SampleFleet(project.root)


def written(project: Project, *argv: str, store: Path | None = None) -> dict[str, Any]:
    """The JSON that `invoke board` writes, with its rows by id and the page."""
    env = {"NIX_STORE_DIR": str(store), "PATH": no_nix()} if store else None
    done = project.run("invoke", "board", *argv, env=env)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads((project.root / ".build-pytorch/board.json").read_text())
    document["by_id"] = {row["variant"]: row for row in document["variants"]}
    document["page"] = (project.root / ".build-pytorch/board.html").read_text()
    return document


def no_nix() -> str:
    """PATH without the programs of Nix: every path of a made-up store counts as valid."""
    folders = os.environ["PATH"].split(":")
    return ":".join(folder for folder in folders if not (Path(folder) / "nix-store").exists())


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_variant_is_in_exactly_one_state(project: Project) -> None:
    document = written(project)
    states = [row["state"] for row in document["variants"]]
    assert len(states) == len(document["by_id"]) == 44
    assert {state: states.count(state) for state in states} == {
        "not built": 36,
        "impossible-host": 8,
    }
    (row,) = [row for row in document["variants"] if row["variant"] == "sm121-avx2"]
    assert row["reason"].startswith("no x86_64-linux machine has SM121")


def test_a_built_and_tested_variant_shows_when_where_how_long_and_on_which_gpu(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet, tmp_path: Path
) -> None:
    store, variant = tmp_path / "store", variants["sm120-avx2"]
    output = fleet_of.built(variant, store)
    report = ".build-pytorch/reports/smoke-x.json"
    (project.root / report).parent.mkdir(exist_ok=True)
    gpu = {"index": 1, "name": "NVIDIA GeForce RTX 5090", "capability": "12.0"}
    cuda = {"device": 1, "available": True, "devices": [gpu]}
    (project.root / report).write_text(json.dumps({"script": {"cuda": cuda}}))
    fleet_of.tested(variant, output, by="inspect", outcome="passed")
    fleet_of.tested(variant, output, by="smoke", outcome="passed", report=report)
    row = written(project, store=store)["by_id"]["sm120-avx2"]
    assert row["state"] == "tested"
    assert row["built"]["is_done"]
    assert row["inspected"]["is_done"]
    assert row["smoke"]["detail"] == "NVIDIA GeForce RTX 5090"
    build = row["build"]
    assert build["at"].startswith("2026-11-20T14:00")
    assert (build["seconds"], build["peak_memory"]) == (7200.0, 12 << 30)
    assert (build["where"], build["backend"], build["cores"]) == ("this machine", "nix", 8)
    assert [event["what"] for event in row["history"]] == ["smoke test", "inspection", "build"]


def test_published_outranks_tested_and_evidence_is_named(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet, tmp_path: Path
) -> None:
    store, variant = tmp_path / "store", variants["cpu-avx2"]
    output = fleet_of.built(variant, store)
    common = fleet_of.common(variant, LAST + timedelta(hours=5))
    event = ledger.Published(**common, output=output, organization="acme", without_evidence=True)
    fleet_of.append(event)
    row = written(project, store=store)["by_id"]["cpu-avx2"]
    assert row["state"] == "published"
    assert (row["published"]["outcome"], row["published"]["is_done"]) == ("no evidence", False)
    assert row["published"]["detail"] == "acme"


def test_a_failed_build_has_the_named_reason_the_excerpt_and_what_to_do(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet
) -> None:
    rule = next(rule for rule in RULES if rule.id == "out-of-memory")
    log = "$ nix-build x\n" + "".join(f"[{n}/7421] Building {n}.o\n" for n in range(1, 5000))
    log += "nvcc error : 'cicc' died due to signal 9 (Kill signal)\nninja: build stopped.\n"
    message = "nvcc error : 'cicc' died due to signal 9 (Kill signal)"
    fleet_of.failed(variants["sm90-avx2"], log, cause=rule.id, message=message)
    row = written(project)["by_id"]["sm90-avx2"]
    failure = row["failure"]
    assert row["state"] == "failed"
    assert (failure["what"], failure["cause"]) == ("build", "out-of-memory")
    assert failure["reason"] == rule.meaning
    assert failure["line"] == message
    assert failure["excerpt"].endswith("ninja: build stopped.")
    assert len(failure["excerpt"].splitlines()) <= 20
    assert "--cores" in failure["fix"]
    assert "`invoke build sm90-avx2`" in failure["fix"]
    assert (project.root / failure["log"]).exists()


def test_a_failure_without_a_rule_or_a_log_says_how_to_go_on(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet
) -> None:
    start = fleet_of.started(variants["sm90-avx2"], LAST)
    fleet_of.ended(start, "failed", 5.0, message="exit code 1")
    failure = written(project)["by_id"]["sm90-avx2"]["failure"]
    assert failure["reason"] == "a reason that no log rule names"
    assert failure["excerpt"] == ""
    assert f"`invoke diagnose {start.log}`" in failure["fix"]


def test_a_recipe_with_errors_is_a_failure_until_it_is_corrected(project: Project) -> None:
    recipe = project.recipe("cpu-avx2")
    good = recipe.read_text()
    recipe.write_text(good.replace("-mavx2", "-mavx"))
    row = written(project)["by_id"]["cpu-avx2"]
    assert (row["state"], row["failure"]["what"]) == ("failed", "recipe")
    assert row["recipe"]["outcome"] != "current"
    assert "error" in row["verified"]["outcome"]
    recipe.write_text(good)
    row = written(project)["by_id"]["cpu-avx2"]
    assert (row["state"], row["verified"]["outcome"]) == ("not built", "yes")


def test_a_running_build_has_progress_and_time_left_and_a_killed_one_is_interrupted(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet
) -> None:
    begun = datetime.now(UTC)
    running = fleet_of.started(variants["sm90-avx2"], begun, pid=os.getpid())
    steps = "".join(f"[{n}/7421] Building {n}.o\n" for n in range(1, 3001))
    fleet_of.log(running, "$ nix-build x\nRunning phase: buildPhase\n" + steps)
    fleet_of.started(variants["sm90-avx512"], begun)  # a process that does not exist
    # The process of this id began after the build did: another one has the id now.
    fleet_of.started(variants["sm89-avx2"], begun - timedelta(days=9), pid=os.getpid())
    by_id = written(project)["by_id"]
    now = by_id["sm90-avx2"]["running"]
    assert by_id["sm90-avx2"]["state"] == "building"
    assert (now["phase"], now["done"], now["total"]) == ("build", 3000, 7421)
    assert now["left"] > 0
    assert now["message"] == "[3000/7421] Building 3000.o"
    for name in ("sm90-avx512", "sm89-avx2"):
        assert by_id[name]["state"] == "interrupted"
        assert by_id[name]["running"] is None
        assert by_id[name]["history"][0]["outcome"] == "killed"


def test_a_failed_test_of_a_result_is_a_failure(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet, tmp_path: Path
) -> None:
    store, variant = tmp_path / "store", variants["sm90-avx2"]
    output = fleet_of.built(variant, store)
    fleet_of.tested(variant, output, by="smoke", outcome="failed", reason="cuda matmul: 0.3")
    row = written(project, store=store)["by_id"]["sm90-avx2"]
    assert (row["state"], row["failure"]["what"]) == ("failed", "smoke test")
    assert row["failure"]["reason"] == "cuda matmul: 0.3"


def test_the_history_is_limited_and_says_so(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet
) -> None:
    variant = variants["cpu-avx2"]
    for number in range(40):
        at = LAST + timedelta(minutes=number)
        fleet_of.append(
            ledger.Tested(**fleet_of.common(variant, at), by="smoke", outcome="passed", output="/x")
        )
    document = written(project)
    row = document["by_id"]["cpu-avx2"]
    assert (len(row["history"]), row["earlier"]) == (15, 25)
    assert row["history"][0]["at"] > row["history"][-1]["at"]
    assert "25 earlier events are in the ledger" in document["page"]


def test_hostile_values_are_text_in_page_and_json(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet
) -> None:
    variant = variants["sm90-avx2"]
    fleet_of.failed(variant, f"$ nix-build x\n{HOSTILE}\nerror: {HOSTILE}\n", message=HOSTILE)
    common = fleet_of.common(variant, LAST) | {"at": HOSTILE}
    fleet_of.append(
        ledger.Tested(
            **common, by="smoke", outcome="failed", output="/x", reason=HOSTILE, report="../../etc"
        )
    )
    fleet_of.append(ledger.Published(**common, organization=HOSTILE, output="/x"))
    document = written(project)
    elements = Elements(document["page"])
    assert [tag for tag, _ in elements.found].count("script") == 1
    assert not [tag for tag, _ in elements.found if tag == "b" and _.get("onclick")]
    assert "document.title='x'" in elements.text
    raw = (project.root / ".build-pytorch/board.json").read_text() + document["page"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", raw)


@pytest.mark.parametrize(
    "line",
    [
        '{"event":"ended","attempt":"a","outcome":"failed","seconds":1e300,"peak_memory":-5',
        '{"event":"ended","attempt":"a","outcome":"failed","seconds":-1,"steps":-9',
        '{"event":"started","attempt":"20261120T1-1-1","backend":"x","cores":-1,"log":"/etc/passwd"',
        '{"event":"started","attempt":"20261120T1-1-1","backend":"x","log":"../../etc/passwd"',
        '{"event":"started","attempt":"x","backend":"x","log":"\\u0000"',
        '{"event":"tested","by":"smoke","outcome":"failed","output":"","report":"/dev/stdin"',
        '{"event":"ended","attempt":"a","outcome":"built","seconds":1e7,"peak_memory":9223372036854775807',
    ],
)
def test_odd_lines_of_the_ledger_end_nothing(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet, line: str
) -> None:
    for at in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "", "2026-11-20"):
        common = json.dumps(fleet_of.common(variants["cpu-avx2"], LAST) | {"at": at})[1:]
        path = project.root / ".build-pytorch/ledger.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(f"{line},{common}\n")
    document = written(project)
    assert len(document["by_id"]["cpu-avx2"]["history"]) == 4


def test_secrets_of_a_log_are_masked(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet
) -> None:
    secret = "ghp_" + "a1B2" * 9
    fleet_of.failed(variants["sm90-avx2"], f"$ nix-build x\nfetch with {secret}\n")
    document = written(project)
    assert "fetch with ***" in document["by_id"]["sm90-avx2"]["failure"]["excerpt"]
    assert secret not in document["page"]


def test_the_page_loads_nothing_and_has_a_strict_policy(project: Project) -> None:
    elements = Elements(written(project)["page"])
    policy = next(a["content"] for _, a in elements.found if a.get("http-equiv"))
    assert policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy
    assert policy.count("'sha256-") == 2
    for tag, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        assert not attributes.get("src"), tag
        assert not (attributes.get("href") or "").startswith(("http", "//")), tag


def test_the_json_has_the_documented_keys(project: Project) -> None:
    page = (project.root / "docs/reference/board.md").read_text()
    documented = set(re.findall(r"(?m)^\| `(\w+)` \| \S", page))

    def keys(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        return set(value).union(*map(keys, value.values())) if isinstance(value, dict) else set()

    written(project)
    document = json.loads((project.root / ".build-pytorch/board.json").read_text())
    assert keys(document) <= documented
    types = (
        *(board.BoardDocument, board.BoardVariant, board.BoardStep, board.BoardBuild),
        *(board.BoardFailure, board.RunningBuild, board.BoardEvent),
    )
    assert documented == {field for kind in types for field in kind.__struct_fields__}


def test_output_is_a_file_of_ours_or_a_new_one(project: Project, tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    assert project.invoke("board", "cpu-*", "--output", str(page)).returncode == 0
    assert project.invoke("board", "cpu-*", "--output", str(page)).returncode == 0
    assert len(json.loads((tmp_path / "fleet.json").read_text())["variants"]) == 4
    assert 'href="fleet.json"' in page.read_text()
    page.write_text("<p>mine")
    wrong = {
        str(page): "exists and is no board",
        str(tmp_path / "fleet.txt"): "must end in .html",
        str(tmp_path / "no/fleet.html"): "no such folder",
        str(tmp_path): "must end in .html",
    }
    for name, message in wrong.items():
        done = project.invoke("board", "--output", name)
        assert done.returncode == 2
        assert message in error_line(done)
    assert page.read_text() == "<p>mine"


def test_watch_rewrites_the_page_while_builds_run_until_ctrl_c(
    project: Project, variants: dict[str, Variant], fleet_of: SampleFleet
) -> None:
    path = project.root / ".build-pytorch/board.json"
    start = fleet_of.started(variants["cpu-avx2"], datetime.now(UTC), pid=os.getpid())
    argv = [sys.executable, "-m", "invoke", "board", "--watch"]
    with subprocess.Popen(argv, cwd=project.root, stderr=subprocess.PIPE, text=True) as watch:

        def state() -> str:
            rows = json.loads(path.read_text())["variants"] if path.exists() else []
            return next((row["state"] for row in rows if row["variant"] == "cpu-avx2"), "")

        wait_until(lambda: state() == "building", "page with the build")
        assert json.loads(path.read_text())["is_live"]
        fleet_of.ended(start, "failed", 9.0, message="exit code 1")
        wait_until(lambda: state() == "failed", "page with the failure")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 0
        assert watch.stderr
        assert "no longer kept up to date" in watch.stderr.read()
    assert not json.loads(path.read_text())["is_live"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.4, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (3600, "1 h"),
        (11100, "3 h 05 min"),
    ],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert board.duration(seconds) == text


@pytest.mark.parametrize("highest", [0.0, 0.2, 1.0, 59.0, 61.0, 3599.0, 5000.0, 9e7])
def test_the_scale_of_a_plot_covers_its_values(highest: float) -> None:
    for unit in (3600.0, float(1 << 30)):
        ticks = board.scale(highest, unit)
        assert ticks[0] == 0
        assert ticks[-1] >= highest
        assert 3 <= len(ticks) <= 6
