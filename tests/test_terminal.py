"""What a terminal and a log never get: control characters of others, and tokens."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import PROJECT, Project, copied_project

from build_pytorch.base.console import Screen, print_json
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import evidence
from build_pytorch.tasks.command import TASKS

pytestmark = pytest.mark.slow

HOSTILE = (
    "\x1b[2J\x1b]0;t\x07\x1b]8;;file:///x\x1b\\\u009b31m\u202e\u2066\u200b\ufeff\u2028\u0085"
    "\x7f\x00\b\rover\x0c\x0b\U000e0041"
)
TOML_HOSTILE = "".join(f"\\U{ord(c):08X}" for c in HOSTILE if c != "\0")
RAW = HOSTILE.encode() + b"\xff\x9b2J"

COMMAND_LINES: dict[str, list[tuple[str, ...]]] = {
    "phase1": [()],
    "phase2": [("--verbose",), ("--check", "--json")],
    "phase3": [()],
    "phase4": [()],
    "phase5": [()],
    "all": [("--check", "--verbose"), ("--json",)],
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
def hostile(tmp_path_factory: pytest.TempPathFactory, matrix: Matrix) -> Project:
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
    event["digest"] = str(evidence.recipe_digest(root, variant))
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
    hostile: Project, arguments: tuple[str, ...], tools: str
) -> None:
    folder = f"{hostile.root}/bin:{hostile.root}" if tools == "hostile tools" else ""
    env = {
        "PATH": f"{folder}:{os.environ['PATH']}".lstrip(":"),
        "USER": HOSTILE.replace("\0", ""),
        "NO_PROXY": "",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [sys.executable, "-m", "invoke", *arguments],
        cwd=hostile.root,
        env={**os.environ, **env},
        capture_output=True,
        timeout=120,
        check=False,
    )
    text = (done.stdout + done.stderr).decode()
    assert "Traceback" not in text, text[-2000:]
    assert [c for c in text if not c.isprintable() and c != "\n"] == []


def test_a_matrix_with_control_characters_is_refused_without_printing_them(
    project: Project,
) -> None:
    project.edit("matrix.toml", 'title = "GPU x86"', f'title = "GPU x86{TOML_HOSTILE}"')
    done = project.invoke("all")
    assert done.returncode == 2
    assert all(c.isprintable() or c == "\n" for c in done.stdout + done.stderr)


def test_a_terminal_gets_our_colours_and_nothing_of_others(project: Project) -> None:
    recipe = project.recipe("cpu-avx2")
    recipe.write_bytes(recipe.read_bytes() + b"# \x1b[32mgreen\x1b[8m" + b"\n")
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "invoke", "phase4"]
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": ""}
    with subprocess.Popen(argv, cwd=project.root, env=env, stdout=theirs, stderr=theirs):
        os.close(theirs)
        text = b"".join(_output(ours)).decode()
    assert "\\x1b[32mgreen\\x1b[8m" in text
    assert "\x1b[31m" in text  # a removed line, in our red
    assert "\x1b[8m" not in text


def _output(descriptor: int) -> Iterator[bytes]:
    try:
        while data := os.read(descriptor, 1 << 16):
            yield data
    except OSError:
        return  # the program ended


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


def test_a_very_long_line_is_cut() -> None:
    out = io.StringIO()
    Screen(out).line("x" * 1_000_000)
    assert len(out.getvalue()) == 10_001


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
