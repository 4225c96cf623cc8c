"""The board: one page and one JSON with the state of every package. Needs no browser."""

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
from conftest import PROJECT, Project, error_line
from sample_fleet import LAST, Checkout, SampleFleet
from world import wait_until

from build_pytorch.build.log_rules import RULES
from build_pytorch.generate import board
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import ledger

HOSTILE = "</script></style><script>document.title='x'</script><b onclick=x>\x1b[31m\u202e&\x00"


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


# --- the data ---


def test_a_built_and_tested_variant_shows_when_and_how_long(checkout: Checkout) -> None:
    variant = checkout.package("sm120-avx2")
    output = checkout.built(variant, checkout.store)
    checkout.tested(variant, output, by="inspect", outcome="passed")
    checkout.tested(variant, output, by="smoke", outcome="passed")
    row = checkout.row("sm120-avx2")
    assert row["state"] == "tested"
    assert (row["built"], row["inspect"], row["smoke"]) == ("yes", "passed", "passed")
    assert row["at"].startswith("2026-11-20T15:00")
    assert row["seconds"] == 7200.0


def test_published_outranks_tested_and_evidence_is_named(checkout: Checkout) -> None:
    variant = checkout.package("cpu-avx2")
    output = checkout.built(variant, checkout.store)
    common = checkout.common(variant, LAST + timedelta(hours=5))
    event = ledger.Published(**common, output=output, organization="acme", without_evidence=True)
    checkout.append(event)
    row = checkout.row("cpu-avx2")
    assert row["state"] == "published"
    assert row["published"] == "no evidence"


def test_a_failed_build_has_the_named_reason_its_line_and_what_to_do(checkout: Checkout) -> None:
    rule = next(rule for rule in RULES if rule.id == "out-of-memory")
    secret = "ghp_" + "a1B2" * 9
    message = "nvcc error : 'cicc' died due to signal 9 (Kill signal)"
    log = "$ nix-build x\n" + "".join(f"[{n}/7421] Building {n}.o\n" for n in range(1, 5000))
    log += f"fetch with {secret}\n{message}\nninja: build stopped.\n"
    checkout.failed(checkout.package("sm90-avx2"), log, cause=rule.id, message=message)
    document, page = checkout.board("sm90-avx2")
    row = document["by_id"]["sm90-avx2"]
    failure = row["failure"]
    assert row["state"] == "failed"
    assert failure["cause"] == "out-of-memory"
    assert failure["reason"] == rule.meaning
    assert failure["line"] == message
    assert "--cores" in failure["fix"]
    assert "`invoke build sm90-avx2`" in failure["fix"]
    assert (checkout.root / failure["log"]).exists()
    assert secret not in page


def test_a_failure_without_a_rule_or_a_log_says_how_to_go_on(checkout: Checkout) -> None:
    start = checkout.started(checkout.package("sm90-avx2"), LAST)
    checkout.ended(start, "failed", 5.0, message="exit code 1")
    failure = checkout.row("sm90-avx2")["failure"]
    assert failure["reason"] == "exit code 1, and no log rule names the failure"
    assert failure["line"] == "exit code 1"
    assert "`invoke log sm90-avx2`" in failure["fix"]


def test_a_failed_test_of_a_result_is_a_failure(checkout: Checkout) -> None:
    variant = checkout.package("sm90-avx2")
    output = checkout.built(variant, checkout.store)
    checkout.tested(variant, output, by="smoke", outcome="failed", reason="cuda matmul: 0.3")
    row = checkout.row("sm90-avx2")
    assert (row["state"], row["failure"]["cause"]) == ("failed", "smoke test")
    assert (row["failure"]["reason"], row["smoke"]) == ("cuda matmul: 0.3", "failed")


def test_a_running_build_has_progress_and_time_left_and_a_killed_one_is_interrupted(
    checkout: Checkout,
) -> None:
    begun = datetime.now(UTC)
    running = checkout.started(checkout.package("sm90-avx2"), begun, pid=os.getpid())
    steps = "".join(f"[{n}/7421] Building {n}.o\n" for n in range(1, 3001))
    checkout.log(running, "$ nix-build x\nRunning phase: buildPhase\n" + steps)
    checkout.started(checkout.package("sm90-avx512"), begun)  # a process that does not exist
    # The process of this id began after the build did: another one has the id now.
    before = begun - timedelta(days=9)
    checkout.started(checkout.package("sm89-avx2"), before, pid=os.getpid())
    by_id = checkout.board("sm90-avx2", "sm90-avx512", "sm89-avx2")[0]["by_id"]
    now = by_id["sm90-avx2"]["running"]
    assert by_id["sm90-avx2"]["state"] == "building"
    assert (now["phase"], now["done"], now["total"]) == ("build", 3000, 7421)
    assert now["left"] > 0
    for name in ("sm90-avx512", "sm89-avx2"):
        assert by_id[name]["state"] == "interrupted"
        assert by_id[name]["running"] is None


def test_failures_of_one_cause_are_one_group_with_the_newest_first(checkout: Checkout) -> None:
    oom = "nvcc error : 'cicc' died due to signal 9 (Kill signal)"
    for name in ("sm90-avx2", "sm90-avx512", "sm89-avx2"):
        checkout.failed(checkout.package(name), f"{oom}\n", cause="out-of-memory", message=oom)
    checkout.failed(checkout.package("cpu-avx2"), "odd\n")
    ids = ("cpu-avx2", "sm90-avx2", "sm90-avx512", "sm89-avx2")
    elements = Elements(checkout.board(*ids)[1])
    groups = [a for tag, a in elements.found if tag == "details"]
    assert len(groups) == 2
    text = " ".join(elements.text.split())
    assert text.index("3 failed the compilers needed more memory") < text.index("1 failed no log")


def test_a_cell_of_the_map_has_the_state_of_the_variant_and_of_its_companions(
    checkout: Checkout,
) -> None:
    ids = ("cpu-avx2", "cpu-avx2+torchvision", "cpu-avx2+torchaudio")
    variant, vision, audio = map(checkout.package, ids)
    checkout.built(variant, checkout.store)
    checkout.built(vision, checkout.store)
    checkout.failed(audio, "error: no\n")
    page = checkout.board(*ids)[1]
    cell = page[page.index('<td class="built"') :].partition("</td>")[0]
    signs = re.findall(r'class="sign ([a-z-]+)" aria-hidden="true">(.)<', cell)
    assert signs == [("built", "●"), ("failed", "✗")]
    assert "#release=cuda13_0&amp;gpu=cpu&amp;isa=avx2" in cell
    assert "built; torchvision: built; torchaudio: failed" in cell


# --- what others wrote ---


def test_hostile_values_are_text_in_page_and_json(checkout: Checkout) -> None:
    variant = checkout.package("sm90-avx2")
    checkout.failed(variant, f"$ nix-build x\n{HOSTILE}\nerror: {HOSTILE}\n", message=HOSTILE)
    common = checkout.common(variant, LAST) | {"at": HOSTILE, "digest": "of another recipe"}
    checkout.append(ledger.Published(**common, organization=HOSTILE, output="/x"))
    document, page = checkout.board("sm90-avx2")
    assert document["by_id"]["sm90-avx2"]["failure"]["line"].startswith("</script>")
    elements = Elements(page)
    assert [tag for tag, _ in elements.found].count("script") == 1
    assert not [tag for tag, attributes in elements.found if attributes.get("onclick")]
    assert "document.title='x'" in elements.text
    raw = json.dumps(document, ensure_ascii=False) + page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", raw)


@pytest.mark.parametrize(
    "line",
    [
        '{"event":"ended","attempt":"a","outcome":"failed","seconds":1e300,"peak_memory":-5',
        '{"event":"ended","attempt":"a","outcome":"built","seconds":1e300,"peak_memory":-5',
        '{"event":"ended","attempt":"a","outcome":"failed","seconds":-1,"steps":-9',
        '{"event":"started","attempt":"20261120T1-1-1","backend":"x","cores":-1,"log":"/etc/passwd"',
        '{"event":"started","attempt":"20261120T1-1-1","backend":"x","log":"../../etc/passwd"',
        '{"event":"started","attempt":"x","backend":"x","log":"\\u0000"',
        '{"event":"tested","by":"smoke","outcome":"failed","output":"","report":"/dev/stdin"',
        '{"event":"ended","attempt":"a","outcome":"built","seconds":1e7,"peak_memory":9223372036854775807',
    ],
)
def test_odd_lines_of_the_ledger_end_nothing(checkout: Checkout, line: str) -> None:
    path = checkout.root / ".build-pytorch/ledger.jsonl"
    path.parent.mkdir()
    variant = checkout.package("cpu-avx2")
    for at in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "", "2026-11-20"):
        common = json.dumps(checkout.common(variant, LAST) | {"at": at})[1:]
        with path.open("a") as file:
            file.write(f"{line},{common}\n")
    document, page = checkout.board("cpu-avx2")
    assert document["by_id"]["cpu-avx2"]["state"]
    assert "root:" not in page


def test_the_page_loads_nothing_and_has_a_strict_policy(checkout: Checkout) -> None:
    elements = Elements(checkout.board("cpu-avx2", "sm121-avx2")[1])
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


def test_the_json_has_the_documented_keys(checkout: Checkout) -> None:
    documented = set(re.findall(r"(?m)^- `(\w+)`: \S", board.reference(PROJECT)))
    assert board.reference(PROJECT).rstrip() in (PROJECT / "docs/how-to/pages.md").read_text()

    def keys(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        return set(value).union(*map(keys, value.values())) if isinstance(value, dict) else set()

    checkout.built(checkout.package("cpu-avx2"), checkout.store)
    checkout.failed(checkout.package("sm90-avx2"), "")
    checkout.started(checkout.package("sm89-avx2"), datetime.now(UTC), pid=os.getpid())
    document, _ = checkout.board("cpu-avx2", "sm90-avx2", "sm89-avx2")
    del document["by_id"]
    assert keys(document) == documented


# --- the command ---


def test_every_package_is_in_one_state(project: Project) -> None:
    done = project.invoke("board")
    assert "44 packages: 8 impossible-host, 36 not built; open" in done.stderr
    rows = json.loads((project.root / ".build-pytorch/board.json").read_text())["variants"]
    by_id = {row["variant"]: row for row in rows}
    assert len(rows) == len(by_id) == 44
    assert by_id["sm121-avx2"]["reason"].startswith("no x86_64-linux machine has SM121")


def test_a_selection_never_replaces_the_board_of_the_whole_matrix(
    project: Project, tmp_path: Path
) -> None:
    assert project.invoke("board").returncode == 0
    whole = (project.root / ".build-pytorch/board.json").read_bytes()
    done = project.invoke("board", "cpu-*")
    assert "board-selection.html" in done.stderr
    assert (project.root / ".build-pytorch/board.json").read_bytes() == whole
    page = (project.root / ".build-pytorch/board-selection.html").read_text()
    assert "only <code>cpu-*</code>" in page
    named = tmp_path / "fleet.html"
    assert project.invoke("board", "--output", str(named)).returncode == 0
    whole = (tmp_path / "fleet.json").read_bytes()
    refused = project.invoke("board", "cpu-*", "--output", str(named))
    assert (refused.returncode, "not a board of a selection" in error_line(refused)) == (2, True)
    assert (tmp_path / "fleet.json").read_bytes() == whole


def test_output_is_a_file_of_ours_or_a_new_one(project: Project, tmp_path: Path) -> None:
    page = tmp_path / "matrix.html"
    assert project.invoke("board", "cpu-*", "--output", str(page)).returncode == 0
    assert project.invoke("board", "cpu-*", "--output", str(page)).returncode == 0
    assert len(json.loads((tmp_path / "matrix.json").read_text())["variants"]) == 4
    assert 'href="matrix.json"' in page.read_text()
    page.write_text("<p>mine")
    wrong = {
        str(page): "not a board; refusing to overwrite it",
        str(tmp_path / "matrix.txt"): "must end in .html",
        str(tmp_path / "no/matrix.html"): "No such file or directory",
        str(tmp_path): "must end in .html",
    }
    for name, message in wrong.items():
        done = project.invoke("board", "--output", name)
        assert done.returncode == 2
        assert message in error_line(done)
    assert page.read_text() == "<p>mine"


def test_watch_rewrites_the_page_while_builds_run_until_ctrl_c(
    project: Project, matrix: Matrix
) -> None:
    sample = SampleFleet(project.root)
    variant = next(variant for variant in matrix.variants if variant.id == "cpu-avx2")
    path = project.root / ".build-pytorch/board-selection.json"
    start = sample.started(variant, datetime.now(UTC), pid=os.getpid())
    project.own_program()
    argv = [sys.executable, "-m", "invoke", "board", "cpu-avx2", "--watch"]
    with subprocess.Popen(argv, cwd=project.root, stderr=subprocess.PIPE, text=True) as watch:

        def state() -> str:
            rows = json.loads(path.read_text())["variants"] if path.exists() else [{"state": ""}]
            return str(rows[0]["state"])

        wait_until(lambda: state() == "building", "page with the build")
        assert json.loads(path.read_text())["is_live"]
        sample.ended(start, "failed", 9.0, message="exit code 1")
        wait_until(lambda: state() == "failed", "page with the failure")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 0
        assert watch.stderr
        assert "no longer kept up to date" in watch.stderr.read()
    document = json.loads(path.read_text())
    assert not document["is_live"]
    assert document["variants"][0]["failure"]["line"] == "exit code 1"
