"""What logs of builds say: real ones, lines of each rule, and `invoke diagnose`."""

from __future__ import annotations

import gzip
import json
import os
import re
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from built_files import variant_of
from conftest import PROJECT, Project, error_line, unfolded
from msgspec.structs import replace

from build_pytorch.base import files
from build_pytorch.build.log_file import diagnose, diagnose_file, named_package
from build_pytorch.build.log_reader import TAIL, LogDiagnosis, LogReader, fails_again
from build_pytorch.build.log_rules import RULES, RULES_BY_ID, BuildPart, LogMatcher, LogRule
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.nix.log_format import NixLogReader

LOGS = PROJECT / "tests/logs"
INDEX: list[dict[str, Any]] = json.loads((LOGS / "index.json").read_text())


def record(**values: object) -> bytes:
    """A line of Nix's JSON log."""
    return b"@nix " + json.dumps(values).encode()


def variant_of_log(matrix: Matrix, entry: dict[str, Any]) -> Variant:
    """Return the variant of a log, in a release of the PyTorch version that the log is for."""
    variant = next(v for v in matrix.variants if v.id == entry["variant"])
    version = entry["torch"] or variant.release.torch.version
    torch = replace(variant.release.torch, version=version)
    return replace(variant, release=replace(variant.release, torch=torch))


def verdict(found: LogDiagnosis, entry: dict[str, Any]) -> dict[str, Any]:
    """What a diagnosis says, in the form of the truth about a log, as far as that is known."""
    names = entry["names"] if found.rule in entry["names"] and not found.stops else [found.rule]
    said = {"stop": found.rule if found.stops else None, "names": names}
    said |= {"ninja": list(found.progress) if found.progress else None, "phase": found.phase}
    return {key: value for key, value in said.items() if key in truth(entry)}


def truth(entry: dict[str, Any]) -> dict[str, Any]:
    known = {key: entry[key] for key in ("stop", "ninja", "phase") if entry[key]}
    return known if entry["stop"] else {**known, "stop": None, "names": entry["names"]}


def in_colour(lines: Iterable[bytes]) -> list[bytes]:
    return [b"\x1b[1;31m" + line + b"\x1b[0m\x1b[K\r" for line in lines]


def with_prefix(lines: Iterable[bytes]) -> list[bytes]:
    """As `nix build -L` writes; Nix's own errors have no prefix."""
    prefix = b"python3.13-torch> "
    other = [b"magma> --   USE_CUDA              : OFF", b"magma> nvcc fatal   : Unsupported gpu"]
    return [*other, *(line if line.startswith(b"error: ") else prefix + line for line in lines)]


def structured(lines: Iterable[bytes]) -> list[bytes]:
    """As `nix build --log-format internal-json` writes, beside another build."""

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


@pytest.mark.parametrize(
    "origin", [list, in_colour, with_prefix, structured, quoted_by_nix], ids=lambda f: f.__name__
)
def test_the_logs_of_real_builds_are_judged_right(matrix: Matrix, origin: Any) -> None:
    for entry in INDEX:
        lines = (LOGS / entry["file"]).read_bytes().splitlines()
        variant = variant_of_log(matrix, entry)
        found = origin(lines)  # built by nixpkgs as torch, and by a recipe under its own name
        name = b"python3.13-" + variant.pname.encode()
        own = [line.replace(b"python3.13-torch", name) for line in found]
        for log in (found, own):
            assert verdict(diagnose(log, variant), entry) == truth(entry), entry["file"]


def test_parts_of_a_log_name_no_other_failure(matrix: Matrix) -> None:
    for entry in INDEX:
        variant = variant_of_log(matrix, entry)
        lines = (LOGS / entry["file"]).read_bytes().splitlines()
        for part in (1, 10, 19):
            at = len(lines) * part // 20
            for cut in (lines[at:], lines[:at], lines[at : at + 200]):
                found = diagnose(cut, variant)
                names = {"", *entry["names"]} if entry["stop"] is None else {found.rule}
                assert not found.stops or entry["stop"], (entry["file"], at)
                assert found.rule in names, (entry["file"], at)


# What the users' documents show of the log of a GPU variant that became a CPU-only PyTorch.
BECAME_CPU_ONLY = """\
-- Could NOT find CUDA (missing: CUDA_TOOLKIT_ROOT_DIR CUDA_NVCC_EXECUTABLE)
  PyTorch: CUDA cannot be found.
  Not compiling with CUDA.
--   USE_CUDA              : OFF
"""


def test_without_a_variant_a_log_that_shows_cuda_is_judged_as_of_a_gpu_variant() -> None:
    found = diagnose(BECAME_CPU_ONLY.encode().splitlines(), None)
    assert (found.rule, found.stops, found.matches[0].line) == ("cuda-off", True, 4)
    assert diagnose(BECAME_CPU_ONLY.encode().splitlines()[-1:], None).rule == ""
    for entry in INDEX:
        found = diagnose((LOGS / entry["file"]).read_bytes().splitlines(), None)
        assert not found.stops or entry["stop"], entry["file"]
        assert not (found.stops and RULES_BY_ID[found.rule].differs)
        if not entry["stop"]:
            same = {**entry, "phase": None}
            assert verdict(found, same) == truth(same)


def test_beside_the_rule_that_stops_a_build_its_first_error_is_named() -> None:
    log = (LOGS / "11-nvcc-no-cudnn-no-nccl.log").read_bytes()
    found = diagnose(log.splitlines(), None)
    assert (found.rule, found.stops) == ("cudnn-off", True)
    assert "Could NOT find NCCL" in str(found.headline)


def test_the_first_rule_of_a_log_counts(matrix: Matrix) -> None:
    entry = next(e for e in INDEX if e["stop"] == "magma-off")
    text = (LOGS / entry["file"]).read_bytes()
    lines = text.replace(b"CUDA detected: 13.0", b"CUDA detected: 12.0").splitlines()
    assert diagnose(lines, variant_of_log(matrix, entry)).rule == "wrong-cuda"


def found_in(lines: Iterable[str], variant: Variant | None) -> LogDiagnosis:
    return diagnose([line.encode() for line in lines], variant)


GPU, CPU_ONLY = variant_of("sm90-avx512"), variant_of("cpu-avx2")
OWN = "python3.13-pytorch210-python313-cuda13_0-sm90-avx512"
OTHERS = (f"{OWN}bf16", "python3.13-pytorch210-python313-cpu-avx512")
"""Other variants; the name of one begins as ours."""


def building(name: str) -> str:
    return f"building '/nix/store/{'a' * 32}-{name}-2.10.0.drv'..."


OFF = "--   USE_CUDA              : OFF"
KILLED = "g++: fatal error: Killed signal terminated program cc1plus"
STEPS = [f"[{n}/100] Building CXX object x{n}.o" for n in range(1, 101)]
BEGUN = [building(OWN), "Running phase: unpackPhase", "Running phase: configurePhase"]
DONE = [*BEGUN, *STEPS, "Running phase: installPhase"]
NAMED = [f"$ nix-build .flox/pkgs/{OWN.partition('210-')[2]}.nix --log-format internal-json"]
BEFORE_A_BUILD = [
    ["TORCH_CUDA_ARCH_LIST=7.5 8.0 8.6 9.0+PTX", "HOME=/root"],  # the environment of a container
    ["$ cat old.log", OFF, "[3/90] x", "$ nix build"],
    ["Running phase: unpackPhase", OFF],  # a dependency without a name
]
PRINTED = "Exception: std::bad_alloc: what():  std::bad_alloc"
MAGMA = f"/nix/store/{'a' * 32}-magma-2.9.0.drv"
OF_MAGMA = [
    [f"magma> {KILLED}"],
    [f"building '{MAGMA}'...", KILLED],
    [f"error: builder for '{MAGMA}' failed with exit code 1;", f"       > {KILLED}"],
]
WRAPPED = [
    "CMake Error at cmake/cmake_install.cmake:77 (file):",
    "  file INSTALL cannot find",
    '  "/build/source/cmake/Modules/FindCUDAToolkit.cmake": No such file or',
    "  directory.",
    "Call Stack (most recent call first):",
    "  cmake_install.cmake:77 (include)",
]
OTHER_STEPS = [f"[{n}/100] x" for n in range(11, 42)] + ["x.cpp:1: warning: y"] * 300
A, B = "sha256-" + "A" * 43 + "=", "sha256-" + "B" * 42 + "A="
HASHES = [
    "error: hash mismatch in fixed-output derivation '/nix/store/x-source.drv':",
    f"         specified: {A}",
    f"            got:    {B}",
]
GONE = "cannot build on 'ssh://thor': error: cannot connect to 'thor': no route"
MACHINES = ["Failed to find a machine for remote build!"]
NO_MACHINE = (
    "error: a 'aarch64-linux' with features {} is required to build '/nix/store/x.drv', but"
)
NOT_THERE = "error: unable to download 'https://x': HTTP error 404"
IMPORT = "ImportError: libcuda.so.1: cannot open shared object file"
KERNEL = "[Sat Nov 21 10:00:00 2026] Out of memory: Killed process 4711 ({}) total-vm:91kB"
UNKNOWN = "nvcc fatal   : Unsupported gpu architecture 'compute_50'"
NO_HEADER = "/build/x.cpp:3:10: fatal error: fmt/format.h: No such file or directory"
NO_MEMBER = 'x.cu(3): error: class "p" has no member "c"'
STEP = "FAILED: c10/x.cpp.o "


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        # The last attempt counts, and nothing before the build stops it; without a sign that it
        # begins, it may be a part of the log.
        ([*DONE, *BEGUN, OFF], "cuda-off"),
        ([*BEGUN, OFF, *DONE], ""),
        *(([*before, begin, "configuring", *rest], wanted)
          for before in BEFORE_A_BUILD
          for begin in BEGUN[:2]
          for rest, wanted in (([OFF], "cuda-off"), (STEPS, ""))),
        *((before, wanted) for before, wanted in zip(
            BEFORE_A_BUILD, ("wrong-capability", "cuda-off", "cuda-off"), strict=True)),
        # What another derivation prints is nothing of a build that has begun,
        *(([*DONE, *theirs, line], "")
          for other in OTHERS for line in (OFF, KILLED) for theirs in ([building(other)],)),
        *(([*DONE, f"{other}> {line}"], "") for other in OTHERS for line in (OFF, KILLED)),
        *(([f"{OWN}> {line}"], wanted)
          for line, wanted in ((OFF, "cuda-off"), (KILLED, "out-of-memory"))),
        # but the failure of a dependency is that of the variant.
        *(([*begin, *failure], "out-of-memory") for begin in ([], NAMED) for failure in OF_MAGMA),
        ([f"error: builder for '{MAGMA}' failed due to signal 9 (Killed)"], "out-of-memory"),
        # What a test prints is no failure of a build that went on.
        ([*DONE, PRINTED], "out-of-memory"),
        ([*DONE, PRINTED, "Running phase: fixupPhase"], ""),
        # A message of CMake counts whole.
        (WRAPPED, "find-cuda-toolkit"),
        ([line.strip() for line in WRAPPED[1:]], ""),
        # The failure of a step names the failure until ninja ends.
        (["[10/100] x", "FAILED: a.o", KILLED, *OTHER_STEPS], "out-of-memory"),
        (["[10/100] x", "FAILED: a.o", KILLED, *OTHER_STEPS, "[1/50] x", *["y"] * 300], ""),
        (["[1/90] x", "FAILED: x", "nvcc error   : 'cicc' died due to signal 11 (x)"],
         "nvcc error   : 'cicc' died due to signal 11 (x)"),
        *((["[1/90] x", KERNEL.format(n)], "") for n in ("chrome", "java")),
        *((["[1/90] x", KERNEL.format(n)], "out-of-memory") for n in ("cc1plus", "cicc")),
        (["Running phase: buildPhase", IMPORT], IMPORT),
        (["Running phase: pythonImportsCheckPhase", IMPORT], "import-check"),
        ([UNKNOWN], "unsupported-architecture"),
        ([*STEPS[:40], UNKNOWN], "unknown-architecture"),
        # A match far above the end does not name the failure,
        *(([early, *["compiling"] * 300, "x.cpp:3: error: boom"], headline) for early, headline in (
            ("fatal: unable to access 'https://x/': Could not resolve host: x",
             "x.cpp:3: error: boom"),
            (KILLED, KILLED),
            ("cc1plus: fatal error: No space left on device",) * 2,
            (HASHES[0], "x.cpp:3: error: boom"),
        )),
        # but one of Nix itself does, until another builder takes the build.
        ([NOT_THERE, *["later"] * 300], "not-there"),
        ([*HASHES, *["later"] * 100], "hash-mismatch"),
        ([GONE, *MACHINES * 300, NO_MACHINE], "builder-unreachable"),
        ([GONE, *MACHINES * 300, "Running phase: unpackPhase", *["compiling"] * 300], ""),
        ([KILLED, "Running phase: buildPhase"], ""),
        # The first error is the headline if no rule names more.
        (["[1/90] x", STEP, "c++ -o x", NO_HEADER, "x.cpp:9:1: error: later"], NO_HEADER),
        (["[1/90] x", STEP, "c++ -o x", "[2/90] x"], STEP.strip()),
        (["[1/90] x", STEP, "  3 | error: quoted", "x:1: warning: error: z"], STEP.strip()),
        (["[1/90] x", "x.cpp:1: error: of a test that goes on", "[2/90] x"], ""),
        (["x.cpp:1: error: of configure", "Running phase: buildPhase"], ""),
        (["[1/90] x", STEP, NO_HEADER, "[1/95] x"], ""),
        (["a.o: undefined reference to `f'", "collect2: error: x"],
         "a.o: undefined reference to `f'"),
        (["CMake Error at a.cmake:73 (message):", "  The C++ compiler", "    is broken", "-- x"],
         "CMake Error at a.cmake:73 (message): The C++ compiler is broken"),
        (["torch.X: y", "ModuleNotFoundError: No module named 'yaml'"],
         "ModuleNotFoundError: No module named 'yaml'"),
        (["[1/90] x", STEP, NO_MEMBER], NO_MEMBER),
    ],
)  # fmt: skip
def test_a_rule_or_else_the_first_error_names_the_failure(lines: list[str], wanted: str) -> None:
    found = found_in(lines, GPU)
    assert (found.rule or (found.headline.text if found.headline else "")) == wanted
    assert len(found.tail) <= TAIL
    # A message of CMake is shown as one line.
    assert lines != WRAPPED or "(file): file INSTALL cannot find" in found.matches[0].text


WIDE = f"[1/{'9' * 60_000}] x"


@pytest.mark.parametrize(
    ("lines", "phase", "steps"),
    [
        (["Running phase: unpackPhase"], "unpack", (0, 0)),
        (["x", "[17/7213] Building CXX object a.o"], "build", (17, 7213)),
        # The small run of ninja by setup.py is not counted.
        (["[1/1450] Building CXX a.o", "[0/1] Install"], "build", (1, 1450)),
        (["[3/4] Generating ATen", "[1/1450] Building CXX a.o"], "build", (1, 1450)),
        (["[1/100] x", WIDE, f"[1/{'9' * 8}] x", "[101/100] x", "[9/8] x"], "build", (1, 100)),
        (["Building in Nix mode", "python3.13-x> Running phase: buildPhase"], "dependencies",
         (0, 0)),
        ([*NAMED, "building magma-2.9.0", f"magma-2.9.0> {OFF}", "Running phase: buildPhase",
          "[30/90] Building CXX object a.o", "magma-2.9.0> [8/900] x"], "build", (30, 90)),
    ],
)  # fmt: skip
def test_phases_and_ninjas_steps_are_followed(
    lines: list[str], phase: str, steps: tuple[int, int]
) -> None:
    found = found_in(lines, GPU)
    assert (found.phase, found.progress or (0, 0), found.rule) == (phase, steps, "")


def test_the_log_names_its_variant(matrix: Matrix) -> None:
    by_id = {package.id: package for package in matrix.packages}
    own, other = by_id["sm120-avx2+torchvision"], by_id["cpu-avx2+torchvision"]
    torch = f"-I/nix/store/x-python3.13-{own.variant.pname}-2.10.0-cxxdev/include"
    whole = f"building '/nix/store/x-python3.13-{own.variant.pname}.drv'"
    table: list[tuple[list[str], Package | None]] = [
        ([by_id["cpu-avx2"].package, by_id["sm90-avx2"].package], None),
        (["nothing"], None),
    ]
    for name in ("cpu-avx512", "cpu-avx512bf16", "sm120-avx2"):
        built = f"building '/nix/store/x-python3.13-{by_id[name].pname}-2.10.0.drv'"
        table += [(["x", built], by_id[name]), ([f"nix-build {by_id[name].path}"], by_id[name])]
    for first in (
        f"building '/nix/store/x-python3.13-{own.pname}-0.25.0.drv'...",
        f"TorchVision 0.25.0 for {own.variant.package}",  # as `nix-store --read-log` prints it
        f"$ nix-build {own.path} --cores 4",
    ):
        log = [first, torch]
        table += [(log, own), ([*log, other.package], None), ([*log, whole], own)]
    for lines, package in table:
        assert named_package(matrix.packages, "\n".join(lines).encode()) is package, lines


GOOD = (LOGS / "good-sm90.txt").read_text()
BEFORE = (
    "-- PyTorch: CUDA detected: 13.0",
    "CMake Warning at cmake/public/cuda.cmake:211 (message): "
    "Cannot find cuDNN library. Turning the option off",
)
"""Lines that some rules need before theirs."""


def first_match(line: str, variant: Variant | None) -> LogRule | None:
    """Return the rule that a line or a message of CMake matches in some part of a build."""
    matcher = LogMatcher(variant)
    for before in BEFORE:
        matcher.stop(before, "downloading")
    parts: tuple[BuildPart, ...] = ("compiling", "downloading", "importing")
    found = [match(line, part) for match in (matcher.stop, matcher.failure) for part in parts]
    return next(filter(None, found), None)


GOOD_CPU = """\
--   USE_CUDA              : OFF
-- USE_CUDA: ON
-- MAGMA not found. Compiling without MAGMA support
CMake Warning at x:1 (message): Not compiling with CUDA. Suppress this warning
"""


def test_no_line_of_a_good_build_trips_a_rule() -> None:
    for text, variant in ((GOOD, GPU), (GOOD_CPU, CPU_ONLY)):
        assert [line for line in text.splitlines() if first_match(line, variant)] == []


SAMPLES = [(rule, line) for rule in RULES for line in rule.samples]


@pytest.mark.parametrize(("rule", "line"), SAMPLES, ids=[rule.id for rule, _ in SAMPLES])
def test_each_rule_matches_the_lines_of_its_failure(rule: LogRule, line: str) -> None:
    both = (GPU, CPU_ONLY)
    variant, other = both if "gpu" in rule.kinds else both[::-1]
    assert first_match(line, variant) is rule
    if len(rule.kinds) == 1:
        assert first_match(line, other) is not rule


def test_every_rule_has_samples_and_says_what_to_do() -> None:
    assert len(RULES_BY_ID) == len(RULES)
    stops = [rule.stops for rule in RULES]
    assert stops == sorted(stops, reverse=True)  # the certain rules first
    for rule in RULES:
        assert rule.samples
        assert min(len(rule.meaning), len(rule.fix)) > 10


def test_the_structured_log_of_nix_names_the_derivation_of_a_line() -> None:
    own, other = (f"/nix/store/{'a' * 32}-{n}.drv" for n in (f"{GPU.pname}-2.10.0", "magma-2.9"))
    lines = [
        record(action="start", id=8, level=3, type=105, text="", fields=[other, "", 1, 1]),
        record(action="result", id=8, type=101, fields=["--   USE_CUDA              : OFF"]),
        record(action="start", id=7, level=3, type=105, text="", fields=[own, "ssh://thor", 1, 1]),
        record(action="result", id=7, type=104, fields=["buildPhase"]),
        record(action="result", id=7, type=101, fields=["\x1b[1m[3/90]\x1b[0m Building"]),
        record(action="stop", id=7),
        record(action="msg", level=0, msg="error: boom\n  at x"),
        b"a warning of another program",
    ]
    reader = LogReader(GPU)
    assert [text for raw in lines[:2] for text in reader.read(raw)] == [
        "building magma-2.9",
        "magma-2.9> --   USE_CUDA              : OFF",
    ]
    assert (reader.phase, reader.dependency, reader.stop) == ("dependencies", "magma-2.9", None)
    assert [text for raw in lines[2:] for text in reader.read(raw)] == [
        f"building {GPU.pname}-2.10.0",
        "[3/90] Building",
        "error: boom",
        "  at x",
        "a warning of another program",
    ]
    assert (reader.phase, reader.where, reader.done) == ("build", "ssh://thor", 3)


def test_a_damaged_record_is_shown_as_text() -> None:
    damaged = [b"{torn", b'{"action":"msg","msg":7}', b"\xff", b"[" * 100_000]
    damaged += [b'{"action":"result","id":1,"type":101,"fields":[%s]}' % (b"9" * 5000)]
    for rest in damaged:
        (line,) = NixLogReader().read(b"@nix " + rest)
        assert line.text == f"@nix {rest.decode(errors='replace')}"


OF_A_RECIPE = "cccl-headers hash-mismatch patch-failed cuda-off"
OF_A_MACHINE = (
    "out-of-memory disk-full network daemon-lost builder-unreachable timed-out illegal-instruction"
)
OTHER_ERROR = "x.cpp:1:1: internal compiler error: Segmentation fault"


def test_a_failure_that_lies_in_the_recipe_comes_again() -> None:
    """Without a rule, one of a compiler does."""
    for names, again in ((OF_A_RECIPE, True), (OF_A_MACHINE, False)):
        for name in names.split():
            assert fails_again(RULES_BY_ID[name], NO_HEADER) is again, name
    said = [NO_HEADER, "x.cu(7): error: no", "exit code 1", STEP, OTHER_ERROR]
    assert [fails_again(None, message) for message in said] == [True, True, False, False, False]


def test_diagnose_prints_the_failure_its_lines_and_what_to_do(project: Project) -> None:
    def shown(name: str) -> str:
        text = (LOGS / name).read_text() if name else ""
        (project.root / "x.log").write_text(text.replace("2.6.0+debian", "2.10.0"))
        done = project.invoke("diagnose", "x.log", "--variant", "cpu-avx2")
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = shown("21-oom-ulimit.log")
    assert all(len(line) <= 80 for line in said.splitlines())
    for text in (
        "phase: build, step 2 of 1274",
        "more memory than this machine has (out-of-memory)",
        "line 17: virtual memory exhausted: Cannot allocate memory",
        "what to do: build with fewer cores",
    ):
        assert text in unfolded(said)
    assert shown("") == "x.log: is empty, so it names no failure\n"
    # Headers of a library are missing, and two steps fail at once. No rule names it.
    error = "/build/source/c10/util/env.cpp:3:10: fatal error: fmt/format.h: No such file"
    assert f"  first error, line 13: {error}" in shown("22-header-missing.log")
    argv = (str(LOGS / "06-gpu-recipe-cpu-build.log"), "--variant", "sm120-avx2", "--json")
    document = json.loads(project.invoke("diagnose", *argv).stdout)
    assert (document["stops"], document["rule"]) == (True, "wrong-version")
    assert document["matches"][0]["line"] == 11


def test_millions_of_blank_lines_cost_as_little_as_their_bytes() -> None:
    log = b"\n" * 1_000_000 + b"g++: fatal error: Killed signal terminated program"
    begin = time.process_time()
    found = diagnose(log.split(b"\n"), None)
    assert time.process_time() - begin < 3, "5 s and more if each of them is read"
    assert (found.rule, found.matches[0].line) == ("out-of-memory", 1_000_001)


def test_the_source_of_a_pin_with_another_version_is_not_prefetched() -> None:
    torch = replace(CPU_ONLY.release.torch, source="nixpkgs")
    of_pin = replace(CPU_ONLY, release=replace(CPU_ONLY.release, torch=torch))
    for each, says in ((CPU_ONLY, "`invoke prefetch`"), (of_pin, "torch of the pin")):
        found = diagnose([b"--   TORCH_VERSION         : 2.6.0"], each)  # of Debian
        assert (found.stops, found.rule, says in found.fix) == (True, "wrong-version", True)


def test_what_is_no_log_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_LOG", 2 << 20)
    with (project.root / "sparse.log").open("wb") as log:
        log.truncate(10 << 30)
    bomb = gzip.compress(b"x" * (1 << 20))
    os.mkfifo(project.root / "fifo")
    for name, content, message in (
        ("fifo", b"", "cannot be read: not a regular file"),
        ("sparse.log", b"", "a binary file, not the text of a log"),
        ("bomb.gz", bomb * 3, "cannot be read: larger than 2 MiB"),
        ("torn.gz", bomb[:-99], "cannot be read: the compressed data is damaged"),
        ("x.txt", "x\n".encode("utf-16"), "a binary file, not the text of a log"),
        ("x.so", b"\x7fELF\2\1\1\0", "a binary file, not the text of a log"),
    ):
        if content:
            (project.root / name).write_bytes(content)
        assert f"{name}: {message}" in error_line(project.invoke("diagnose", name))


def test_logs_are_read_plain_and_from_gzip(tmp_path: Path, matrix: Matrix) -> None:
    text = "".join(f"{line}\n" for line in [*BEGUN, OFF, *STEPS]).encode()
    log = tmp_path / "x.log"
    for content in (text, gzip.compress(text[:99]) + gzip.compress(text[99:])):
        log.write_bytes(content)
        found = diagnose_file(str(log), matrix.packages, None)
        assert (found.variant, found.stops, found.matches[0].line) == (GPU.id, True, 4)


def hostile(number: int) -> bytes:
    """A line that begins, ends or interrupts what the reader follows."""
    lines = (
        b"\x1b[1;31merror:\x1b[0m /build/x%d.cpp: fatal error: nvcc\n",
        b"CMake Error at x:%d (message):\n",
        b"  goes on %d\n",
        b"FAILED: x%d.o\n",
        b"[1/%d] x\n",
        b"\x1b]0;title %d",
        b'@nix {"action":"msg","msg":"error: %d"}\n',
        b"x%d> error: boom\n",
        b'@nix {"action":"start","id":%d,"type":105,"fields":["/nix/store/x.drv",""]}\n',
    )
    return lines[number % len(lines)] % number


def test_a_hostile_log_is_read_fast(tmp_path: Path, matrix: Matrix) -> None:
    """One of 100 MB takes 25 s on a busy machine and 55 MiB of memory; here it has 4 MB."""
    log = tmp_path / "x.log"
    log.write_bytes(b"".join(map(hostile, range(160_000))))
    begin = time.process_time()
    found = diagnose_file(str(log), matrix.packages, None)
    assert time.process_time() - begin < 2.5
    assert (found.lines, found.variant) == (160_000 * 8 // 9, None)


def test_a_log_without_a_line_break_is_read_in_constant_memory(
    tmp_path: Path, matrix: Matrix
) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"error: \x1b[31mCUDA_ARCH " * 1_000_000)
    tracemalloc.start()
    found = diagnose_file(str(log), matrix.packages, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.lines == 21
    assert peak < 16 << 20, "a few pieces of the file"
