"""torch-for-me.pyz: the answers of `invoke recommend`, with the standard library alone."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import picker_machines
import pytest
from conftest import PROJECT, WHOLE
from test_index import HOSTILE, broken, encoded

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.cli import recommend_document, torch_for_me
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.cli.describe_machine import described_machine
from build_pytorch.cli.recommend_screen import Offer
from build_pytorch.generate import standalone
from build_pytorch.hardware import choose, index
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.matrix import matrix_reader

MATRIX = matrix_reader.parse(WHOLE)
SPARK = str(PROJECT / "tests/machines/dgx-spark.json")
PYTHONS = [
    found
    for name in ("python3.11", "python3.12", "python3.13", "python3.14")
    if (found := shutil.which(name))
    and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0
]
ASK = """
import contextlib, functools, io, json, sys
sys.path.insert(0, sys.argv[1])
from build_pytorch.cli import torch_for_me
torch_for_me._read = functools.cache(torch_for_me._read)
found = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = torch_for_me.main(words)
    found.append([code, out.getvalue(), err.getvalue()])
others = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(json.dumps([found, sorted(others)]))
"""
CONVERT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import msgspec
from build_pytorch.hardware.saved_machines import Machine
found = []
for case in json.load(sys.stdin):
    try:
        found.append(msgspec.to_builtins(msgspec.convert(case, Machine)))
    except msgspec.ValidationError:
        found.append(None)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("standalone") / "torch-for-me.pyz"
    path.write_bytes(standalone.program(PROJECT))
    (path.parent / "variants.json").write_bytes(encoded(MATRIX))
    return path


def asked(
    program: Path, calls: list[list[str]], python: str = sys.executable
) -> tuple[list[Any], list[str]]:
    """What the program answers to several calls, and the modules that are not of Python."""
    done = subprocess.run(
        [python, "-I", "-S", "-c", ASK, str(program)],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=True,
        cwd=program.parent,
    )
    found, others = json.loads(done.stdout)
    return found, others


def _never(_: object) -> Offer:
    return Offer(says="", first={}, every={})


def recommended(machine: Machine, number: int | None = None) -> dict[str, Any]:
    """What `invoke recommend --json` prints, without commands, which are for a checkout."""
    choice = choose.choose(MATRIX, machine, gpu=number)
    code = 0 if choice.runs else 1
    found = recommend_document.document_of(MATRIX, _never, machine, choice, code)
    document: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return document


def without_commands(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    for answer in document["answers"]:
        answer["commands"] = {}
    return document


def test_every_saved_machine_gets_the_answer_of_recommend(program: Path) -> None:
    calls = [["variants.json", "--json", "--machine", str(path)] for path in picker_machines.SAVED]
    found, others = asked(program, calls)
    assert others == ["__main__", "build_pytorch", "msgspec"], "the standard library alone"
    machines = picker_machines.saved()
    wanted = {name: recommended(machine) for name, machine in machines.items()}
    answers = {
        name: without_commands(out) for name, (_, out, _) in zip(machines, found, strict=True)
    }
    assert answers == wanted
    assert [code for code, _, _ in found] == [it["exit_code"] for it in wanted.values()]
    assert {code for code, _, _ in found} == {0, 1}


def test_what_people_type_gets_the_answer_of_recommend(program: Path) -> None:
    typed = [it for it in picker_machines.typed(60) if it["cpu"]]
    calls = [
        ["variants.json", "--json", *(f"--{key}={it[key]}" for key in ("gpu", "cpu", "driver"))]
        for it in typed
    ]
    found, _ = asked(program, calls)
    answered = 0
    for it, (code, out, err) in zip(typed, found, strict=True):
        options = RecommendOptions(gpu=(it["gpu"],), cpu=it["cpu"], driver=it["driver"])
        try:
            machine, number = described_machine(options, MATRIX)
        except BuildPytorchError as error:
            wrong = f"error: {error}\n"
        else:
            wrong = ""
        assert err == wrong
        if wrong:
            assert code == 2
            continue
        answered += 1
        assert without_commands(out) == recommended(machine, number)
    assert 10 < answered < len(typed)


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).name)
def test_it_runs_on_each_python_and_needs_less_than_a_second_of_work(
    program: Path, python: str
) -> None:
    """Of CPU time, as other work may run on the machine of the tests."""
    before = _children()
    argv = [python, "-I", "-S", str(program), "--machine", SPARK]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert _children() - before < 2.0  # 0.7 on an idle machine
    assert "Best: cuda13_0/sm121-armv9\n" in done.stdout
    assert "  Flox     git clone https://github.com/build-pytorch/build-pytorch" in done.stdout
    assert "nix-build release.nix" in done.stdout
    assert "  install  uv pip install torch==" in done.stdout
    assert all(len(line) <= 80 or "//" in line for line in done.stdout.splitlines())


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_same_sources_are_the_same_bytes(program: Path, tmp_path: Path) -> None:
    again = tmp_path / "new/bin/again.pyz"
    argv = [sys.executable, "-m", "build_pytorch.generate.standalone", str(again)]
    subprocess.run(argv, check=True, cwd=PROJECT, env={"TZ": "Asia/Tokyo"})
    assert again.read_bytes() == program.read_bytes()
    assert os.access(again, os.X_OK)
    with zipfile.ZipFile(program) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    mine = {path.name for path in (PROJECT / "build_pytorch/hardware").glob("*.py")}
    assert {f"build_pytorch/hardware/{name}" for name in mine} <= set(names)


def test_it_names_no_machine_that_builds(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "build_pytorch", tmp_path / "build_pytorch")
    builder = '[[builder]]\nuri = "ssh://nix@secret-host"\nplatforms = ["aarch64-linux"]\n'
    (tmp_path / "matrix.toml").write_text(f"{WHOLE}\n{builder}")
    assert b"secret-host" not in standalone.program(tmp_path)


# --- an index from elsewhere ---


@contextlib.contextmanager
def served(status: int, body: bytes, host: str = "127.0.0.1", **headers: str) -> Iterator[str]:
    """The address of a server on this machine that gives one answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((host, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{host}:{server.server_port}/variants.json"
    finally:
        server.shutdown()
        server.server_close()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = torch_for_me.main([*words, "--machine", SPARK])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(autouse=True)
def _signals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_for_me, "end_at_signals", lambda: None)


def test_an_index_is_read_from_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    published = {"organizations": ["acme"], "output": f"/nix/store/{'a' * 32}-torch"}
    body = broken(published, "build-pytorch", "packages", "cuda13_0/sm121-armv9")
    with served(200, body) as address:
        code, out, _ = said(capsys, address)
    assert code == 0
    assert "  built and published by acme\n  Flox     flox install acme/pytorch-" in out


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, b"", "cannot be read: HTTP Error 404: Not Found"),
        (200, b"<html>", "not an index: "),
        (200, b"x" * (index.LARGEST + 9), "not an index: larger than 4096 KiB"),
        (200, broken({"about": HOSTILE}, "build-pytorch", "packages", "cuda13_0/sm121-armv9"),
         "one line of text"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_one_line_and_nothing_of_it_acts(
    status: int, body: bytes, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(status, body) as address:
        code, out, err = said(capsys, address)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {address}: ")
    assert says in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("headers", "of"),
    [({"Content_Length": "99"}, ", 40 of 99 bytes"), ({"Transfer_Encoding": "chunked"}, "")],
)
def test_an_answer_that_ends_too_early_is_called_incomplete(
    headers: dict[str, str], of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(200, b"58" + b"\r\n" * 19, **headers) as address:
        code, out, err = said(capsys, address)
    why = f"cannot be read: incomplete{of}; try again"
    assert (code, out, err) == (2, "", f"error: {address}: {why}\n")


@pytest.mark.allow_hosts(["127.0.0.1", "127.0.0.2"])
def test_an_address_that_leads_to_an_unprotected_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with served(200, b"{}", "127.0.0.2") as other, served(302, b"", Location=other) as address:
        code, _, err = said(capsys, address)
    why = "found http://127.0.0.2; allowed: https://, or http:// of localhost"
    assert (code, err) == (2, f"error: {address}: cannot be read: {why}\n")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("no-such.json", "cannot be read: No such file or directory"),
        ("/dev/zero", "cannot be read: not a regular file"),
        ("ftp://example.org/x", "found ftp://example.org; allowed: https://"),
        ("http://localhost@example.org/x", "found http://example.org; allowed: "),
        ("http://127.0.0.1:1/x", "cannot be read: "),
        ("-", "error: standard input: "),
        (f"{HOSTILE}.json", "cannot be read: "),
    ],
)
def test_what_is_no_index_is_one_line(
    source: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, source)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_a_full_disk_is_one_line(program: Path) -> None:
    with Path("/dev/full").open("w") as full:
        argv = [sys.executable, str(program), "--machine", SPARK]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    wanted = "error: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, wanted)


def test_comparisons_of_the_index_count(capsys: pytest.CaptureFixture[str]) -> None:
    machine = json.loads(Path(SPARK).read_text())
    facts = {
        "package": "cuda13_0/sm121-armv9",
        "against": "wheel 2.10.0",
        "machine_class": ", ".join(
            [machine["cpu"]["model"], "20 cores", machine["gpus"][0]["name"]]
        ),
        "verdict": "faster",
        "figures": "20 threads: 0.80",
        "date": "2026-11-23",
    }
    changed = broken({"comparisons": [facts]}, "build-pytorch", "packages", facts["package"])
    with served(200, changed) as address:
        _, out, _ = said(capsys, address)
    assert "against it: faster on" in out


# --- the stand-in for msgspec ---


def test_the_stand_in_accepts_and_refuses_what_msgspec_does(program: Path) -> None:
    """Each value of a machine in turn is replaced by one of another type or without its form."""
    document = json.loads(Path(SPARK).read_text())
    wrong: list[Any] = [None, True, -1, 10**30, 1.5, "", "\x1b", "x" * 2000, [], {}, [1], {"a": 1}]
    cases = []
    for key in document:
        cases += [{**document, key: value} for value in wrong]
        cases.append({name: value for name, value in document.items() if name != key})
    for key in document["gpus"][0]:
        gpu = document["gpus"][0]
        cases += [{**document, "gpus": [{**gpu, key: value}]} for value in wrong]
    cases.append({**document, "more": 1})
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CONVERT, str(program)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    for case, mine in zip(cases, found, strict=True):
        try:
            wanted = msgspec.to_builtins(msgspec.convert(case, Machine))
        except msgspec.ValidationError:
            wanted = None
        assert mine == json.loads(json.dumps(wanted)), case
    assert {mine is None for mine in found} == {True, False}


@pytest.mark.parametrize(("words", "code"), [("no-such-index 2>&-", 2), ("--gpu none >&-", 0)])
def test_closed_streams_change_no_exit_code(program: Path, words: str, code: int) -> None:
    command = f"{sys.executable} {program} --machine tests/machines/rtx5090-zen4.json {words}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, cwd=PROJECT, check=False)
    assert (done.returncode, done.stderr) == (code, b"")


@pytest.mark.parametrize("target", ["mine.txt", "."])
def test_another_file_is_not_overwritten(tmp_path: Path, target: str) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    argv = [sys.executable, "-m", "build_pytorch.generate.standalone", str(tmp_path / target)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=PROJECT, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("standalone.py: error: ")
    assert (tmp_path / "mine.txt").read_text() == "mine"
