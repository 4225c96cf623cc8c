"""`invoke diagnose`, and the logs of real builds that it has to read right."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from conftest import PROJECT, Project, error_line, unfolded

from build_pytorch.base import files
from build_pytorch.build.build_progress import LogDiagnosis, diagnose, named_package
from build_pytorch.build.log_reader import split_lines
from build_pytorch.cli.diagnose import _chunks
from build_pytorch.matrix.model import Matrix, Variant

LOGS = PROJECT / "tests/logs"
INDEX: list[dict[str, Any]] = json.loads((LOGS / "index.json").read_text())


def variant_of(matrix: Matrix, entry: dict[str, Any]) -> Variant:
    """Return the variant of a log, in a release of the PyTorch version that the log is for."""
    variant = next(v for v in matrix.variants if v.id == entry["variant"])
    if not entry["torch"]:
        return variant
    torch = msgspec.structs.replace(variant.release.torch, version=entry["torch"])
    release = msgspec.structs.replace(variant.release, torch=torch)
    return msgspec.structs.replace(variant, release=release)


def judge(found: LogDiagnosis, entry: dict[str, Any]) -> None:
    """Compare a diagnosis with the truth about a log."""
    assert (found.stop.rule.id if found.stop else None) == entry["stop"], entry["file"]
    if not entry["stop"]:
        assert (found.failure.rule.id if found.failure else "") in entry["names"], entry["file"]
    if entry["ninja"]:
        assert found.progress == tuple(entry["ninja"])
    if entry["phase"]:
        assert found.phase == entry["phase"], entry["file"]


def plain(lines: Iterable[bytes]) -> list[bytes]:
    return list(lines)


def with_crlf(lines: Iterable[bytes]) -> list[bytes]:
    return [line + b"\r" for line in lines]


def in_colour(lines: Iterable[bytes]) -> list[bytes]:
    return [b"\x1b[1;31m" + line + b"\x1b[0m\x1b[K" for line in lines]


def with_prefix(lines: Iterable[bytes]) -> list[bytes]:
    """As `nix build -L` writes; Nix's own errors have no prefix."""
    prefix = b"python3.13-torch> "
    other = [b"magma> --   USE_CUDA              : OFF", b"magma> nvcc fatal   : Unsupported gpu"]
    return [*other, *(line if line.startswith(b"error: ") else prefix + line for line in lines)]


def structured(lines: Iterable[bytes]) -> list[bytes]:
    """As `nix build --log-format internal-json` writes, beside another build."""

    def record(**values: object) -> bytes:
        return b"@nix " + json.dumps(values).encode()

    torch, magma = (f"/nix/store/{'a' * 32}-{n}.drv" for n in ("python3.13-torch-2.10", "magma-2"))
    found = [record(action="start", id=7, level=3, type=105, text="", fields=[torch, "", 1, 1])]
    found.append(record(action="start", id=8, level=3, type=105, text="", fields=[magma, "", 1, 1]))
    for raw in lines:
        line = raw.decode(errors="replace")
        if line.startswith("error: "):
            found.append(record(action="msg", level=0, msg=f"\x1b[31;1merror:\x1b[0m {line[7:]}"))
        elif phase := re.fullmatch(r"Running phase: (\w+)", line):
            found.append(record(action="result", id=7, type=104, fields=[phase[1]]))
        else:
            found.append(record(action="result", id=7, type=101, fields=[line]))
            noise = "--   USE_CUDA              : OFF"
            found.append(record(action="result", id=8, type=101, fields=[noise]))
    return found


def quoted_by_nix(lines: Sequence[bytes]) -> list[bytes]:
    """Only the error of Nix, with the last lines of the log."""
    drv = b"/nix/store/" + b"a" * 32 + b"-python3.13-torch-2.10.0.drv"
    head = [b"error: Cannot build '%s'." % drv, b"       Reason: builder failed with exit code 1."]
    return [*head, b"       Last 400 log lines:", *(b"       > " + line for line in lines)]


ORIGINS = (plain, with_crlf, in_colour, with_prefix, structured, quoted_by_nix)


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda f: f.__name__)
def test_the_logs_of_real_builds_are_judged_right(matrix: Matrix, origin: Any) -> None:
    for entry in INDEX:
        lines = (LOGS / entry["file"]).read_bytes().splitlines()
        variant = variant_of(matrix, entry)
        package = variant.package.encode()
        found = origin(lines)  # built by nixpkgs as torch, and by a recipe under its own name
        judge(diagnose(found, variant), entry)
        own = [line.replace(b"python3.13-torch", b"python3.13-" + package) for line in found]
        if own != found:
            judge(diagnose(own, variant), entry)


@pytest.mark.parametrize("entry", INDEX, ids=lambda e: e["file"])
def test_parts_of_a_log_name_no_other_failure(matrix: Matrix, entry: dict[str, Any]) -> None:
    variant = variant_of(matrix, entry)
    lines = (LOGS / entry["file"]).read_bytes().splitlines()
    for part in (1, 5, 10, 15, 19):
        at = len(lines) * part // 20
        for cut in (lines[at:], lines[:at], lines[at : at + 200]):
            found = diagnose(cut, variant)
            assert not found.stop or entry["stop"], at
            if not entry["stop"]:
                assert not found.failure or found.failure.rule.id in entry["names"]


def test_without_a_variant_no_rule_that_depends_on_it_stops() -> None:
    for entry in INDEX:
        found = diagnose((LOGS / entry["file"]).read_bytes().splitlines(), None)
        assert (found.stop.rule.id if found.stop else None) in {None, "unknown-architecture"}
        if not entry["stop"]:
            judge(found, {**entry, "phase": None})


def test_another_cuda_is_named_before_what_it_lacks(matrix: Matrix) -> None:
    entry = next(e for e in INDEX if e["stop"] == "magma-off")
    text = (LOGS / entry["file"]).read_bytes()
    lines = text.replace(b"CUDA detected: 13.0", b"CUDA detected: 12.0").splitlines()
    judge(diagnose(lines, variant_of(matrix, entry)), {**entry, "stop": "wrong-cuda"})


def test_a_good_log_stops_for_no_variant_of_its_kind(matrix: Matrix) -> None:
    entry = INDEX[0]
    lines = (LOGS / entry["file"]).read_bytes().splitlines()
    for variant in matrix.variants:
        if variant.gpu is None:
            found = diagnose(lines, variant_of(matrix, {**entry, "variant": variant.id}))
            assert (found.stop, found.failure) == (None, None)


def test_the_log_of_a_build_here_is_read_as_the_build_was(matrix: Matrix) -> None:
    variant = matrix.variants[0]
    lines = [
        f"$ nix-build {variant.path} --log-format internal-json",
        "building magma-2.9.0",
        "magma-2.9.0> --   USE_CUDA              : OFF",
        "Running phase: buildPhase",
        "[30/90] Building CXX object a.o",
        "--   USE_CUDA              : OFF",
        "magma-2.9.0> [8/900] x",
    ]
    found = diagnose([line.encode() for line in lines], variant)
    assert found.stop
    assert [number for number, _ in found.stop.lines] == [6]
    assert found.progress == (30, 90)


# --- whose lines they are ---

OFF = "--   USE_CUDA              : OFF"
STEPS = [f"[{n}/100] Building CXX object x{n}.o" for n in range(1, 101)]


def test_the_log_of_a_companion_names_the_companion_and_its_failure(project: Project) -> None:
    """As `nix-store --read-log` prints it, without any line of Nix."""
    log = (
        "Running phase: unpackPhase\nRunning phase: configurePhase\n"
        "TorchVision 0.25.0 for pytorch-python313-cuda13_0-sm120-avx512\n"
        "CPU flags: -mavx512f\nJobs:      8\nRunning phase: buildPhase\n"
        "building 'torchvision._C' extension\n"
        "[3/91] /nix/store/x-cuda13.0-cuda_nvcc-13.0.88/bin/nvcc -I/nix/store/x-python3.13-"
        "pytorch210-python313-cuda13_0-sm120-avx512-2.10.0-cxxdev/include -c nms_kernel.cu\n"
        "nvcc fatal   : Unsupported gpu architecture 'compute_99'\n"
    )
    (project.root / "vision.log").write_text(log)
    found = json.loads(project.invoke("diagnose", "vision.log", "--json").stdout)
    assert found["variant"] == "sm120-avx512+torchvision"
    assert (found["failure"], found["phase"]) == ("unknown-architecture", "build")
    argv = ("diagnose", "vision.log", "--variant", "sm120-avx512+torchaudio", "--json")
    assert json.loads(project.invoke(*argv).stdout)["variant"] == argv[3]


def building(variant: Variant) -> str:
    return f"building '/nix/store/{'a' * 32}-python3.13-{variant.pname}-2.10.0.drv'..."


def build_of(variant: Variant, *summary: str) -> list[str]:
    return [building(variant), "unpacking sources", "configuring", *summary, *STEPS, "installing"]


def found_in(lines: Iterable[str], variant: Variant | None) -> LogDiagnosis:
    return diagnose([line.encode() for line in lines], variant)


@pytest.fixture(scope="module")
def gpu(matrix: Matrix) -> Variant:
    return next(v for v in matrix.variants if v.id == "sm120-avx512")


@pytest.fixture(scope="module")
def others(matrix: Matrix) -> list[Variant]:
    ids = ("cpu-avx512", "sm120-avx512bf16")
    return [v for v in matrix.variants if v.id in ids]


BEFORE_A_BUILD = {
    "the environment of a container": ["TORCH_CUDA_ARCH_LIST=7.5 8.0 8.6 9.0+PTX", "HOME=/root"],
    "an old log": ["$ cat old.log", OFF, "[3/90] x", "$ nix build"],
    "a script": ["+ cat <<EOF", OFF, "EOF"],
    "a dependency without a name": ["unpacking sources", "configuring", OFF],
}


@pytest.mark.parametrize("before", BEFORE_A_BUILD.values(), ids=BEFORE_A_BUILD)
def test_nothing_before_the_build_stops_it(gpu: Variant, before: list[str]) -> None:
    for begin in (building(gpu), f"$ flox build {gpu.package}", "Running phase: unpackPhase"):
        if begin[0] == "b" or "unpacking sources" not in before:
            found = found_in([*before, begin, "configuring", *STEPS], gpu)
            assert (found.stop, found.failure, found.progress) == (None, None, (100, 100))
            assert found_in([*before, begin, "configuring", OFF], gpu).stop
    assert found_in(before, gpu).stop  # without such a sign, it may be a part of the log


def test_a_second_attempt_does_not_hide_why_the_first_is_stopped(gpu: Variant) -> None:
    found = found_in([*build_of(gpu, OFF), *build_of(gpu)], gpu)
    assert found.stop
    assert [number for number, _ in found.stop.lines] == [4]


def test_a_sibling_whose_name_is_longer_is_another(gpu: Variant, others: list[Variant]) -> None:
    for other in others:
        name = f"python3.13-{other.pname}"
        assert not found_in([*build_of(gpu), f"{name}> {OFF}"], gpu).stop
        assert not found_in([*build_of(gpu), *build_of(other, OFF)], gpu).stop
    assert found_in([f"python3.13-{gpu.pname}> {OFF}"], gpu).stop


KILLED = "g++: fatal error: Killed signal terminated program cc1plus"


def killed_in(other: Variant, drv: str) -> dict[str, list[str]]:
    """Ways in which a log says that the build of another variant had no memory left."""
    failed = f"error: builder for '/nix/store/{drv}' failed with exit code 137;"
    start = {"action": "start", "id": 7, "type": 105, "fields": [f"/nix/store/{drv}", ""]}
    result = {"action": "result", "id": 7, "type": 101, "fields": [KILLED]}
    return {
        "building": [building(other), KILLED, "FAILED: x"],
        "prefix": [f"python3.13-{other.pname}> {KILLED}"],
        "end": [failed, "       last 2 log lines:", f"       > {KILLED}"],
        "signal": [f"error: builder for '/nix/store/{drv}' failed due to signal 9 (Killed)"],
        "reason": [
            f"error: Cannot build '/nix/store/{drv}'.",
            "       Reason: builder failed due to signal 9.",
        ],
        "time": [f"error: building of '/nix/store/{drv}' timed out after 7 seconds"],
        "records": ["@nix " + json.dumps(record) for record in (start, result)],
    }


def test_no_failure_of_another_is_one_of_a_build_that_has_begun(
    gpu: Variant, others: list[Variant]
) -> None:
    for other in others:
        ways = killed_in(other, f"{'a' * 32}-python3.13-{other.pname}-2.10.0.drv")
        for way, theirs in ways.items():
            own = build_of(gpu)
            for lines in (own + theirs, theirs + own):
                assert found_in(lines, gpu).failure is None, way
            assert found_in(theirs, other).failure, way
    needed = killed_in(gpu, f"{'a' * 32}-python3.13-nccl-2.28.drv")["end"]
    assert found_in(needed, gpu).failure
    assert not found_in([*build_of(gpu), *needed], gpu).failure, "of another build"
    assert found_in([*build_of(gpu), KILLED], gpu).failure


def test_what_a_test_prints_is_no_failure_of_a_build_that_went_on(gpu: Variant) -> None:
    printed = "Exception: std::bad_alloc: what():  std::bad_alloc"
    result = f"/nix/store/{'b' * 32}-{gpu.pname}-2.10.0"
    for success in (
        "1 passed",
        "OK",
        "Running phase: fixupPhase",
        "post-installation fixup",
        result,
    ):
        assert found_in([*build_of(gpu), printed, success], gpu).failure is None
    for end in ("", "1 failed, 1 passed", "Traceback (most recent call last):"):
        assert found_in([*build_of(gpu), printed, end], gpu).failure
    for name, is_own in ((f"python3.13-{gpu.pname}-2.10.0", True), ("x", False)):
        failed = f"error: builder for '/nix/store/{'a' * 32}-{name}.drv' failed due to signal 9"
        found = found_in([*build_of(gpu), failed, "1 passed"], gpu).failure
        assert bool(found) == is_own


STORE = f"/nix/store/{'a' * 32}"


def test_the_failure_of_a_dependency_is_that_of_the_variant(gpu: Variant) -> None:
    magma = f"{STORE}-magma-2.9.0.drv"
    for failure in (
        [f"magma> {KILLED}"],
        [f"building '{magma}'...", KILLED],
        [f"error: builder for '{magma}' failed due to signal 9 (Killed)"],
        [f"error: builder for '{magma}' failed with exit code 1;", f"       > {KILLED}"],
    ):
        for begin in ([], [f"$ nix build -f {gpu.path}"]):
            assert found_in([*begin, *failure], gpu).failure, failure


def test_the_log_names_its_variant(matrix: Matrix) -> None:
    by_id = {v.id: v for v in matrix.variants}
    for name in ("cpu-avx512", "cpu-avx512bf16", "sm120-avx2"):
        line = f"building '/nix/store/x-python3.13-{by_id[name].pname}-2.10.0.drv'".encode()
        assert named_package(matrix.variants, [b"x", line]) is by_id[name]
        line = f"nix-build {by_id[name].path}".encode()
        assert named_package(matrix.variants, [line]) is by_id[name]
    own, other = (
        next(c for c in matrix.companions if c.id == id_)
        for id_ in ("sm120-avx2+torchvision", "cpu-avx2+torchvision")
    )
    torch = f"-I/nix/store/x-python3.13-{own.variant.pname}-2.10.0-cxxdev/include"
    begun = f"building '/nix/store/x-python3.13-{own.pname}-0.25.0.drv'..."
    printed = f"TorchVision 0.25.0 for {own.variant.package}"
    for first in (begun, printed, f"$ nix-build {own.path} --cores 4"):
        log = [first.encode(), torch.encode()]
        assert named_package(matrix.packages, log) is own
        assert named_package(matrix.packages, [*log, other.package.encode()]) is None
        whole = [*log, f"building '/nix/store/x-python3.13-{own.variant.pname}.drv'".encode()]
        assert named_package(matrix.packages, whole) is own.variant
    both = [by_id["cpu-avx2"].package.encode(), by_id["sm90-avx2"].package.encode()]
    assert named_package(matrix.variants, both) is None
    assert named_package(matrix.variants, [b"nothing"]) is None


def test_lines_are_split_wherever_the_pieces_end() -> None:
    text = b"one\ntwo\n\nthree"
    for size in range(1, len(text)):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert list(split_lines(pieces, 100)) == [b"one", b"two", b"", b"three"]
    assert list(split_lines([b"x" * 30, b"y\nz"], 20)) == [b"x" * 30, b"y", b"z"]


# --- the command ---


def test_diagnose_prints_the_failure_its_lines_and_what_to_do(project: Project) -> None:
    log = LOGS / "21-oom-ulimit.log"
    text = log.read_text().replace("torch-2.6.0+debian", "torch-2.10.0")
    (project.root / "x.log").write_text(text)
    done = project.invoke("diagnose", "x.log", "--variant", "cpu-avx2")
    assert done.returncode == 0, done.stderr
    assert "phase: build, step 2 of 1274" in done.stdout
    assert "more memory than this machine has (out-of-memory)" in unfolded(done.stdout)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "line 17: virtual memory exhausted: Cannot allocate memory" in done.stdout
    assert "what to do: build with fewer cores" in done.stdout


def test_the_first_error_is_shown_if_no_rule_names_the_failure(project: Project) -> None:
    """A real log: headers of a library are missing, and two steps fail at once."""
    text = (LOGS / "22-header-missing.log").read_text().replace("2.6.0+debian", "2.10.0")
    (project.root / "x.log").write_text(text)
    error = "/build/source/c10/util/env.cpp:3:10: fatal error: fmt/format.h: No such file"
    done = project.invoke("diagnose", "x.log", "--variant", "cpu-avx2")
    assert f"  first error, line 13: {error}" in done.stdout
    done = project.invoke("diagnose", "x.log", "--variant", "cpu-avx2", "--json")
    headline = json.loads(done.stdout)["headline"]
    assert (headline["line"], headline["text"].startswith(error)) == (13, True)


def test_millions_of_blank_lines_cost_as_little_as_their_bytes(still: Project) -> None:
    log = still.root.parent / "blank.log"
    log.write_bytes(b"\n" * 1_000_000 + b"g++: fatal error: Killed signal terminated program\n")
    begin = time.process_time()
    done = still.invoke("diagnose", str(log), "--json")
    assert time.process_time() - begin < 3, "5 s and more if each of them is read"
    found = json.loads(done.stdout)
    assert (found["lines"], found["failure"]) == (1_000_001, "out-of-memory")
    assert found["failure_lines"][0]["line"] == 1_000_001


def test_one_line_is_no_plural(still: Project) -> None:
    log = still.root.parent / "one.log"
    log.write_text("x\n")
    assert ": 1 line, unknown variant" in unfolded(still.invoke("diagnose", str(log)).stdout)


def test_a_large_log_shows_on_a_terminal_how_much_is_read(project: Project) -> None:
    (project.root / "x.log").write_bytes(b"-- Looking for x\n" * 70_000)
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "invoke", "diagnose", "x.log"]
    env = {**os.environ, "TERM": "xterm"}
    subprocess.run(
        argv, cwd=project.root, stdout=subprocess.DEVNULL, stderr=theirs, env=env, check=True
    )
    os.close(theirs)
    assert b"x.log: 1 MiB read" in os.read(ours, 1 << 16)
    os.close(ours)


def test_diagnose_json_has_the_documented_keys(still: Project) -> None:
    log = str(LOGS / "06-gpu-recipe-cpu-build.log")
    done = still.invoke("diagnose", log, "--variant", "sm120-avx2", "--json")
    document = json.loads(done.stdout)
    keys = ["variant", "lines", "phase", "progress", "stop", "stop_line", "failure"]
    assert list(document) == [*keys, "failure_lines", "headline", "meaning", "fix", "tail"]
    assert (document["stop"], document["stop_line"]) == ("wrong-version", 11)
    page = (PROJECT / "docs/how-to/read-a-log.md").read_text()
    assert all(f"`{key}`" in page for key in document)


def test_diagnose_reads_standard_input(still: Project) -> None:
    text = b"[7/60] Building CXX object a.o\nKilled\n"
    argv = [sys.executable, "-m", "invoke", "diagnose", "-", "--json"]
    done = subprocess.run(argv, input=text, cwd=still.root, capture_output=True, check=True)
    assert json.loads(done.stdout)["failure"] == "out-of-memory"


def test_the_source_of_a_pin_with_another_version_is_not_prefetched(matrix: Matrix) -> None:
    log = [b"--   TORCH_VERSION         : 2.6.0"]  # of a Debian package, in place of nixpkgs'
    variant = next(v for v in matrix.variants if v.id == "cpu-avx2")
    torch = msgspec.structs.replace(variant.release.torch, source="nixpkgs")
    release = msgspec.structs.replace(variant.release, torch=torch)
    advice = {}
    for each in (variant, msgspec.structs.replace(variant, release=release)):
        stop = diagnose(log, each).stop
        assert stop
        assert stop.rule.id == "wrong-version"
        advice[each.source.source] = stop.rule.advice(each, "x.log")
    assert "`invoke prefetch`" in advice["github"]
    assert "prefetch" not in advice["nixpkgs"]
    assert "torch of the pin" in advice["nixpkgs"]


REFUSED = {
    (): "name a package (its last log)",
    ("a", "b"): "name a package (its last log)",
    ("missing.log",): 'missing.log: no such file; as an id: no variant matches "missing.log"',
    ("sm90-avx2",): "sm90-avx2: the ledger has no build of it",
    ("/dev/zero",): "/dev/zero: cannot be read: not a regular file",
    ("fifo",): "fifo: cannot be read: not a regular file",
    (".",): ".: cannot be read: Is a directory",
    ("matrix.toml", "--variant", "sm9"): 'no variant matches "sm9"',
    ("matrix.toml", "--variant", "sm90-*"): "names several",
}


def test_what_is_no_log_is_refused(project: Project) -> None:
    os.mkfifo(project.root / "fifo")
    for arguments, message in REFUSED.items():
        assert message in error_line(project.invoke("diagnose", *arguments))


FORMS: dict[str, Callable[[str], bytes]] = {
    "plain": lambda text: text.encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip in two parts": lambda text: (
        gzip.compress(text[:99].encode()) + gzip.compress(text[99:].encode())
    ),
    "CR": lambda text: text.replace("\n", "\r").encode(),
}


def test_logs_are_read_in_every_form(project: Project, gpu: Variant) -> None:
    text = "\n".join(build_of(gpu, OFF)) + "\n"
    for form, write in FORMS.items():
        (project.root / "x.log").write_bytes(write(text))
        lines = split_lines(_chunks(str(project.root / "x.log")), 1 << 20)
        found = diagnose(lines, gpu)
        assert found.stop, form
        assert found.stop.lines[0][0] == 4, form


def test_a_log_has_a_limit_also_when_it_is_expanded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGEST_LOG", 2 << 20)
    root = project.root
    with (root / "sparse.log").open("wb") as log:
        log.truncate(10 << 30)
    bomb = gzip.compress(b"\0" * (1 << 20))
    (root / "bomb.gz").write_bytes(bomb * 3)
    (root / "torn.gz").write_bytes(bomb[:-99])
    (root / "x.bz2").write_bytes(b"BZh9" + b"x" * 99)
    (root / "x.txt").write_bytes("x\n".encode("utf-16"))
    (root / "x.zst").write_bytes(b"\x28\xb5\x2f\xfdxxxx")
    for name, message in {
        "sparse.log": "sparse.log: cannot be read: larger than 2 MiB",
        "bomb.gz": "bomb.gz: cannot be read: larger than 2 MiB",
        "torn.gz": "torn.gz: cannot be read: the compressed data is damaged",
        "x.bz2": "x.bz2: compressed with bzip2; convert it to plain text first",
        "x.txt": "x.txt: written in UTF-16; convert it to plain text first",
        "x.zst": "x.zst: compressed with zstd; convert it to plain text first",
    }.items():
        assert message in error_line(project.invoke("diagnose", name))


def test_an_empty_log_is_said_to_be_empty(project: Project) -> None:
    (project.root / "empty").touch()
    done = project.invoke("diagnose", "empty")
    assert (done.returncode, done.stdout) == (0, "empty: is empty, so it names no failure\n")
