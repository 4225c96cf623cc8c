"""Hostile input of every reader: it is read or refused in one line, and reaches no terminal raw.

Hypothesis draws the mistakes and shrinks what fails: those of people (a missing quote), of programs
(truncation, bytes, control characters), and of servers.
"""

from __future__ import annotations

import copy
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import hypothesis.strategies as st
import pytest
import tomlkit
from conftest import ONE, PROJECT, Project, copied_project, needs_nix, write_recipes
from hypothesis import HealthCheck, example, given, settings
from markdown_it import MarkdownIt
from msgspec import convert, structs, to_builtins

from build_pytorch.base import digest, foreign_json
from build_pytorch.base.console import Screen, print_json, visible
from build_pytorch.base.errors import BuildPytorchError, MatrixError
from build_pytorch.base.process import ProcessResult
from build_pytorch.build.log_file import diagnose
from build_pytorch.build.log_reader import LogReader
from build_pytorch.build.log_rules import RULES
from build_pytorch.generate import docs
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import choose
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import FAKE
from build_pytorch.nix.quoting import to_sri
from build_pytorch.results import artefacts, package_state
from build_pytorch.results.ledger import FILE
from build_pytorch.smoke.judge import SmokeReport, judge
from build_pytorch.smoke.smoke_case import case_of
from build_pytorch.sources import fetchers
from build_pytorch.tasks import machine as task
from build_pytorch.tasks.command import TASKS
from build_pytorch.tasks.diagnose import show
from build_pytorch.tasks.smoke import show_case
from build_pytorch.verify import verification

TESTS: Final = PROJECT / "tests"
MATRIX: Final = matrix_reader.parse(ONE)
TABLES: Final = tomllib.loads(ONE)
HASH: Final = "sha256-" + "B" * 42 + "A="

PIECES: Final = [
    *"'\"$\\{}[]()#=.,;:/*<>|&`~!@%^+?_- \n\r\t\0\x1b\x7f\x85\x9b\u202e\u2028\ufeff\u200b", "\U0010ffff",
    "''", '"""', "'''", "[[", "]]", "${", "''${", '${builtins.abort "x"}', "*/", "../..", "--help",
    "$(id)", "\x1b[2J", "\x1b]0;t\x07", "</script>", "<b>", "<!-- end generated: counts -->", "**",
    "[a](javascript:b)", "```", "| a |", "\n\n# a\n\n", "null", "nan", "1e999", "sm_120", "\\ud800",
    "::stop-commands::x", "##[error]", "@nix ", "error: ", "9" * 5000, "[" * 3000, '{"a":' * 3000,
    "x" * 70_000, "release.cuda13_0", "1979-13-45", "\\q", "a = 1", "sha256-", "0" * 52,
]  # fmt: skip
VALUES: Final[list[Any]] = [
    7, -1, True, 1.5, "", "a\nb", "a\x1b[31mb", "${x}", "../..", "x" * 5000, [], {}, [[]],
    10**30, {"a": 1}, {"k" * 3000: 1}, ["sm120"] * 300, "580.65.06", "/nix/store/../x",
]  # fmt: skip
hostile = settings(
    derandomize=True,  # the same mistakes in each run: a change is tested, not the day
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=60,
    print_blob=False,
)
some = settings(hostile, max_examples=15)


@st.composite
def broken(draw: st.DrawFn, originals: list[str]) -> str:
    """A text with up to four mistakes: a piece put in, a part gone or twice, or cut off."""
    text = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(0, 4))):
        place, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        kind = draw(st.sampled_from(("piece", "piece", "gone", "twice", "few", "cut")))
        text = {
            "piece": text[:place] + draw(st.sampled_from(PIECES)) + text[place:],
            "gone": text[:place] + text[end:],
            "twice": text[:end] + text[place:],
            "few": text[:place] + text[place + 1 :],
            "cut": text[:place],
        }[kind]
    return text


def places(node: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document."""
    if trail:
        yield trail
    items: Any = enumerate(node) if isinstance(node, list) else getattr(node, "items", tuple)()
    for key, value in items:
        yield from places(value, (*trail, key))


def replaced(document: Any, trail: tuple[Any, ...], value: Any) -> Any:
    """A copy of a document with another value in a place; None removes it."""
    changed = parent = copy.deepcopy(document)
    for step in trail[:-1]:
        parent = parent[step]
    if value is None:
        del parent[trail[-1]]
    else:
        parent[trail[-1]] = value
    return changed


@st.composite
def broken_json(draw: st.DrawFn, documents: list[Any]) -> str:
    """A JSON document with one other value, and perhaps broken as text."""
    whole = draw(st.sampled_from(documents))
    trail = draw(st.sampled_from(list(places(whole))))
    text = json.dumps(replaced(whole, trail, draw(st.sampled_from([None, *VALUES]))))
    return draw(st.one_of(st.just(text), broken([text])))


def is_shown(text: str) -> bool:
    """Whether a text has no control characters besides line breaks."""
    return text.replace("\n", "").isprintable()


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def result_of(call: Callable[[], Any]) -> Any:
    """What a reader returns; None if it refuses, in a line that can be printed for each fault."""
    try:
        return call()
    except BuildPytorchError as error:
        lines = str(error).split("\n")
    assert all(visible(line).isprintable() for line in lines), lines
    return None


# --- matrix.toml ---


def refused(data: bytes) -> list[str]:
    """The lines of a refusal, each with file, line, place and reason; none for a valid matrix."""
    try:
        matrix_reader.decode(data)
    except MatrixError as error:
        lines = str(error).split("\n")
        *_, last = lines
        for line in lines[:-1] if re.fullmatch(r"and \d+ more errors", last) else lines:
            found = re.fullmatch(r"matrix\.toml(?::([1-9]\d*))?: ([^:].*?: |byte 0x).+", line)
            assert found, line
            assert int(found[1] or 1) <= data.count(b"\n") + 1, line
            assert len(line) <= 300, line
        return lines
    return []


@hostile
@given(text=broken([ONE]))
def test_a_broken_matrix_is_refused_with_its_places_or_valid(text: str) -> None:
    refused(encoded(text))


@hostile
@given(trail=st.sampled_from(list(places(TABLES))), value=st.sampled_from([None, *VALUES]))
def test_a_wrong_value_is_refused_with_its_place_or_valid(
    trail: tuple[Any, ...], value: Any
) -> None:
    refused(encoded(tomlkit.dumps(replaced(TABLES, trail, value))))


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe", b"\xef\xbb\xbfx = 1", b"release = 3", b"", b"[" * 5000, b"x = " + b"9" * 5000],
)
def test_what_is_no_matrix_is_refused(data: bytes) -> None:
    assert refused(data)


def text_at(trail: tuple[Any, ...]) -> Any:
    node: Any = TABLES
    for step in trail:
        node = node[step]
    return node


TEXTS: Final = [trail for trail in places(TABLES) if isinstance(text_at(trail), str)]
MARKDOWN: Final = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def pages(matrix: Matrix) -> dict[str, Counter[str]]:
    """The number of elements of each kind that each generated page has, text left out."""
    shapes = {}
    for page, text in docs.render(matrix).items():
        if ".md" in page:
            tokens = MARKDOWN.parse(text)
            kinds = [child.type for token in tokens for child in token.children or ()]
            text_kinds = {"text", "text_special", "softbreak"}
            shapes[page] = Counter(token.type for token in tokens)
            shapes[page].update(kind for kind in kinds if kind not in text_kinds)
    return shapes


@pytest.mark.slow
@needs_nix
@settings(hostile, max_examples=12)
@given(
    trail=st.sampled_from(TEXTS),
    text=broken(["", "a", "1.2"]).filter(lambda text: len(text) < 400),
    is_added=st.booleans(),
)
@example(trail=("release", "cuda13_0", "purpose"), text='${builtins.abort "x"}</td>', is_added=True)
def test_a_hostile_text_of_the_matrix_is_refused_or_only_a_value(
    trail: tuple[Any, ...], text: str, is_added: bool
) -> None:
    """Recipes with it pass the checks of evaluation, and pages keep their structure."""
    value = text_at(trail) + text if is_added else text
    changed = tomlkit.dumps(replaced(TABLES, trail, value))
    if refused(encoded(changed)):
        return
    matrix = matrix_reader.parse(changed)
    with tempfile.TemporaryDirectory() as folder:
        recipes = write_recipes(Path(folder), matrix)
        assert all(map(digest.is_intact, recipes.values()))
        result = verification.verify(matrix, Path(folder), only=["evaluation"])
        assert [(it.check, it.found) for it in result.findings if it.severity == "error"] == []
    if {"when", "until", "facts", "has", "driver"} & set(trail):
        return  # it decides which rows a page has
    assert pages(matrix) == pages(MATRIX)


# --- logs ---

LINES: Final = [
    *(line for rule in RULES for line in rule.hints),
    "CMake Warning at x:1 (message):", "FAILED: x", "--   USE_CUDA              : OFF", "[8/1559] x",
    '@nix {"action":"start","id":1,"type":105,"fields":["/nix/store/x.drv","ssh://x"]}',
    '@nix {"action":"result","id":1,"type":101,"fields":["--   USE_CUDA              : OFF"]}',
    '@nix {"action":"msg","level":0,"msg":"error: hash mismatch in fixed-output\\n specified: x"}',
]  # fmt: skip


@hostile
@given(lines=st.lists(broken(LINES), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_no_line_of_a_log_raises_hangs_or_reaches_the_terminal(lines: list[str], seed: int) -> None:
    variant = random.Random(seed).choice(MATRIX.variants)
    data = [encoded(line) for line in lines]
    reader = LogReader(variant)
    for raw in data:
        begin = time.process_time()
        assert all(isinstance(line, str) for line in reader.read(raw))
        assert time.process_time() - begin < 2.0, raw[:200]
    out, diagnosis = io.StringIO(), diagnose(data, variant)
    show(Screen(out), "x.log", diagnosis)
    print_json(diagnosis, out)
    assert is_shown(out.getvalue())


# --- documents of other programs and machines ---

REPORTS: Final = [json.loads(it.read_text()) for it in (TESTS / "fixtures/smoke").glob("*.json")]
MACHINES: Final = [json.loads(it.read_text()) for it in (TESTS / "machines").glob("*.json")]
EVENT: Final = {
    "at": "2026-11-20T10:00:00.000+00:00",
    "release": "cuda13_0",
    "variant": "sm90-avx2",
}
EVENTS: Final[list[Any]] = [
    {**EVENT, "event": "started", "digest": "d", "attempt": "a", "backend": "nix", "cores": 4},
    {**EVENT, "event": "ended", "digest": "d", "attempt": "a", "outcome": "built", "seconds": 1.5},
    {**EVENT, "event": "tested", "by": "smoke", "outcome": "passed", "output": "/x", "digest": "d"},
    {**EVENT, "event": "published", "digest": "d", "organization": "o", "output": "/nix/store/x"},
]


@some
@given(text=broken_json(REPORTS), seed=st.integers(0, 99))
def test_a_report_of_others_is_judged_or_refused(text: str, seed: int) -> None:
    try:
        raw = foreign_json.decode(text)
        found = convert(raw, SmokeReport)
    except ValueError:
        return
    out, variant = io.StringIO(), random.Random(seed).choice(MATRIX.variants)
    case = structs.replace(case_of(variant, judge(found, variant)), script=raw)
    show_case(Screen(out), variant, case, found)
    print_json(to_builtins(case), io.StringIO())
    assert is_shown(out.getvalue())


@some
@given(text=broken_json(MACHINES))
def test_a_machine_of_others_gets_an_answer_or_is_refused(text: str) -> None:
    machine = result_of(lambda: saved_machines.parse(encoded(text), "machine.json"))
    if machine is None:
        return
    out = io.StringIO()
    task.print_machine(Screen(out), machine)
    task.print_choice(Screen(out), choose(MATRIX, machine), verbose=True)
    assert is_shown(out.getvalue())


@some
@given(lines=st.lists(broken_json(EVENTS), min_size=1, max_size=6))
def test_a_ledger_of_others_is_read_without_its_wrong_lines(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / FILE
        path.parent.mkdir()
        path.write_bytes(encoded("\n".join([*lines, json.dumps(EVENTS[0]), ""])))
        states = package_state.package_states(Path(name), MATRIX.variants)
        assert any(state.events for state in states.values())


# --- answers of prefetch programs ---

PRINTED: Final = [HASH, f"{HASH}\n", json.dumps(HASH), json.dumps({"owner": "x", "hash": HASH}), ""]
LOGS: Final = [
    f"error: hash mismatch in fixed-output derivation '/nix/store/x-source.drv':\n"
    f"         specified: {FAKE}\n            got:    {HASH}\n",
    "error: unable to download 'https://github.com/x': HTTP error 404\n",
]


@hostile
@given(out=broken(PRINTED), err=broken(LOGS), code=st.integers(0, 1), expired=st.booleans())
def test_an_answer_of_a_prefetch_program_is_a_hash_or_one_line(
    out: str, err: str, code: int, expired: bool
) -> None:
    source = fetchers.sources(MATRIX)[0]
    answer = ProcessResult(code, out, err, expired=expired)
    found = result_of(lambda: fetchers.read_hash(source, answer))
    assert found is None or to_sri(str(found)) == found


# --- any JSON ---

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(-1e300, 1e300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@hostile
@given(DOCUMENTS)
def test_a_document_is_what_it_was(document: object) -> None:
    assert foreign_json.decode(json.dumps(document)) == document


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 65 + b"]" * 65, "nested too deeply"),
        (b"9" * 5000, "out of range"),
        (b"1e999", "out of range"),
        (b"[NaN]", "malformed"),
        (rb'["\ud800"]', "truncated|surrogate"),
        ('"\ud800"', "surrogates not allowed"),
        (b"\xef\xbb\xbf{}", "malformed"),
        ("[]".encode("utf-16"), "malformed"),
        (b"", "truncated"),
        (b"[1, 2,]", "trailing comma"),
        (b" " * (foreign_json.MAX_BYTES + 1), "larger than 16384 KiB"),
    ],
)
def test_what_some_programs_cannot_handle_is_refused(data: bytes | str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        foreign_json.decode(data)
    assert foreign_json.decode("[" * 64 + "]" * 64)  # as deep as usual ones


# --- what a terminal gets ---

HOSTILE = (
    "\x1b[2J\x1b]0;t\x07\x1b]8;;file:///x\x1b\\\u009b31m\u202e\u2066\u200b\ufeff\u2028\u0085"
    "\x7f\x00\b\rover\x0c\x0b\U000e0041"
)
RAW = HOSTILE.encode() + b"\xff\x9b2J"

COMMAND_LINES: dict[str, list[tuple[str, ...]]] = {
    "phase1": [()],
    "phase2": [("--verbose",)],
    "phase3": [()],
    "phase4": [()],
    "phase5": [()],
    "all": [("--check", "--verbose")],
    "verify": [(), ("--json",), ("--explain", f"x{HOSTILE[1:]}".replace("\0", ""))],
    "prefetch": [("--from-log", "hostile.log"), ("--check",)],
    "init": [("new",), ("lib",)],
    "bump": [("--torch", "2.11.0", "--dry-run")],
    "outdated": [(), ("--json",)],
    "build": [("cpu-avx2", "--dry-run"), ("cpu-avx2",), ("cpu-avx2", "--backend", "nix", "--json")],
    "diagnose": [("hostile.log",), ("hostile.log", "--variant", "cpu-avx2", "--json")],
    "status": [(), ("--json",)],
    "log": [("sm90-avx2",)],
    "show": [("sm90-avx2",), ("sm90-avx2", "--json")],
    "smoke": [("cpu-avx2",), ("cpu-avx2", "--python", "./python"), ("cpu-avx2", "--json")],
    "inspect": [("cpu-avx2",), ("cpu-avx2", "--path", "lib"), ("cpu-avx2", "--json")],
    "compare": [("./python",)],
    "doctor": [
        ("--python", "./python"),
        ("--python", "./python", "--machine", "machine.json", "--json"),
    ],
    "publish": [("cpu-avx2",), ("cpu-avx2", "--json"), ("cpu-avx2", "--org", "o", "--dry-run")],
    "recommend": [
        ("--machine", "machine.json"),
        ("--machine", "machine.json", "--json"),
        ("--describe",),
    ],
}
PROGRAMS = ("git", "nix", "nix-build", "nix-instantiate", "nix-store", "flox", "nvidia-smi", "gcc")


@pytest.fixture(scope="module")
def hostile_project(tmp_path_factory: pytest.TempPathFactory, matrix: Matrix) -> Project:
    """A project in which everything that a command reads holds control characters."""
    project = copied_project(tmp_path_factory.mktemp("hostile") / "project")
    root = project.root
    recipe = project.recipe("cpu-avx2")
    recipe.write_bytes(recipe.read_bytes() + b"# " + RAW + b"\n")
    (project.pkgs / f"x{HOSTILE[:8]}\n.nix").write_bytes(RAW)
    state = root / ".build-pytorch"
    (state / "logs").mkdir(parents=True)
    event = {"at": "2026-11-20T10:00:00.000+00:00", "release": "cuda13_0", "variant": "sm90-avx2"}
    variant = next(v for v in matrix.variants if v.id == event["variant"])
    event["digest"] = str(artefacts.recipe_digest(root, variant))
    events = [
        {"event": "ended", **event, "attempt": "a", "outcome": "failed", "seconds": 1.5,
         "message": HOSTILE, "cause": HOSTILE, "where": HOSTILE, "outputs": [HOSTILE]},
        {"event": "tested", **event, "by": "smoke", "outcome": "failed", "output": HOSTILE,
         "reason": HOSTILE, "report": HOSTILE},
        {"event": "published", **event, "organization": HOSTILE, "output": HOSTILE},
    ]  # fmt: skip
    (state / "ledger.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    line = RAW.replace(b"\0", b"") + b" Killed\n"
    (root / "hostile.log").write_bytes(b"[30/90] x\n" + line + b"error: hash mismatch " + line)
    machine = json.loads(next((PROJECT / "tests/machines").glob("*.json")).read_text())
    (root / "machine.json").write_text(json.dumps({**machine, "name": HOSTILE}))
    (root / "lib").mkdir()
    (root / "lib" / f"libtorch_cpu{HOSTILE[:8]}.so").write_bytes(b"\x7fELF" + RAW)
    (root / "bin").mkdir()
    script = b"#!/bin/sh\nprintf '%s\\n' '" + RAW.replace(b"\0", b"") + b"' 'error: x' >&2\n"
    script += b"printf '%s\\n' '" + RAW.replace(b"\0", b"") + b"'\nexit 1\n"
    for program in ("python", *(f"bin/{name}" for name in PROGRAMS)):
        (root / program).write_bytes(script)
        (root / program).chmod(0o755)
    return project


def test_every_command_is_tried() -> None:
    assert set(COMMAND_LINES) == set(TASKS)


WITH_REAL_TOOLS = {"all", "verify", "build", "status"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "tools"),
    [
        ((name, *line), tools)
        for name, lines in COMMAND_LINES.items()
        for line in lines
        for tools in ("hostile tools", "real tools")
        if tools == "hostile tools" or name in WITH_REAL_TOOLS
    ],
    ids=lambda words: (words if isinstance(words, str) else ascii(" ".join(words)))[:40],
)
def test_no_control_character_reaches_the_output(
    hostile_project: Project, arguments: tuple[str, ...], tools: str
) -> None:
    folder = (
        f"{hostile_project.root}/bin:{hostile_project.root}" if tools == "hostile tools" else ""
    )
    env = {
        "PATH": f"{folder}:{os.environ['PATH']}".lstrip(":"),
        "USER": HOSTILE.replace("\0", ""),
        "NO_PROXY": "",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [sys.executable, "-m", "invoke", *arguments],
        cwd=hostile_project.root,
        env={**os.environ, **env},
        capture_output=True,
        timeout=120,
        check=False,
    )
    text = (done.stdout + done.stderr).decode()
    assert "Traceback" not in text, text[-2000:]
    assert [c for c in text if not c.isprintable() and c != "\n"] == []


def test_only_what_paint_returned_is_a_colour() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen(Terminal())
    screen.line(f"{screen.paint('a', 'red')} \x1b[31mb\x1b[0m")
    assert isinstance(screen.stream, Terminal)
    assert screen.stream.getvalue() == "\x1b[31ma\x1b[0m \\x1b[31mb\\x1b[0m\n"


def test_one_function_writes_to_the_terminal() -> None:
    """Except scripts that run alone, and the message about missing packages."""
    writes = re.compile(r"(?<![\w.])print\(|(?:stdout|stderr)(?:\.buffer)?\.write")
    found = [
        path.relative_to(PROJECT).as_posix()
        for path in (PROJECT / "build_pytorch").rglob("*.py")
        if writes.search(path.read_text())
    ]
    assert sorted(found) == [
        "build_pytorch/base/installed_torch.py",
        "build_pytorch/smoke/upstream.py",  # in the program that it starts
        "build_pytorch/tasks/command.py",
        "build_pytorch/tasks/machine.py",  # in the program that it names
    ]


def test_json_stays_json() -> None:
    out = io.StringIO()
    print_json({"x": HOSTILE}, out)
    assert json.loads(out.getvalue()) == {"x": HOSTILE}
    assert out.getvalue().isascii()


def test_lines_of_others_are_no_commands_to_github(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    Screen(out).line("tail:\n    ::stop-commands::x\n##[error]y")
    assert out.getvalue() == "tail:\n    .::stop-commands::x\n.##[error]y\n"
