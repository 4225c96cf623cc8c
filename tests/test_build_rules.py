"""What build logs say: each rule on lines as PyTorch, CMake, nvcc and Nix print them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from build_pytorch.build.log_reader import TAIL, LogReader, fails_again
from build_pytorch.build.log_rules import RULES, RULES_BY_ID, BuildPart, LogMatcher, LogRule
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.nix.log_format import NixLogReader

# PyTorch's summary of a good build for SM90, with other lines of its log.
GOOD = """\
Building wheel torch-2.10.0
-- Building version 2.10.0
cmake -GNinja -DBUILD_PYTHON=True -DCMAKE_BUILD_TYPE=Release -DUSE_CUDA=1 -DTORCH_CUDA_ARCH_LIST=9.0 -DUSE_MAGMA=1 /build/source
declare -x TORCH_CUDA_ARCH_LIST="9.0"
-- Found CUDA: /nix/store/zzz-cuda-merged-13.0 (found version "13.0")
-- Could NOT find CUDA_NVTX (missing: CUDA_NVTX_LIBRARY)
-- PyTorch: CUDA detected: 13.0
-- PyTorch: CUDA nvcc is: /nix/store/zzz-cuda-merged-13.0/bin/nvcc
-- Added CUDA NVCC flags for: -gencode;arch=compute_90,code=sm_90
-- CMAKE_CUDA_ARCHITECTURES: OFF
--   USE_GLOO_WITH_OPENSSL : OFF
--   TP_USE_CUDA           : OFF
--   USE_CUDA              : ON
--     CUDA version        : 13.0
--     USE_FLASH_ATTENTION : ON
--   USE_EXCEPTION_PTR     : 1
--   USE_ROCM              : OFF
--   USE_NCCL              : ON
-- Configuring done (31.4s)
-- CMAKE_CUDA_ARCHITECTURES:STRING=90-real
[1/7213] Building CXX object third_party/kineto/CMakeFiles/kineto.dir/a.cpp.o
nvcc -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90a,code=sm_90a -DTORCH_FEATURE_VERSION=0 x.cu
warning: error: unable to open cache; OOM-killed processes are listed in dmesg
-- USE_CUDA: OFF
-- CUDA version: 13
-- CUDA version: 580.65
-- Unknown architecture, disabling asm
  312 |   throw std::runtime_error("Unknown architecture");
  201 | } catch (const std::bad_alloc& e) {
x.h:3:2: warning: #warning "Unsupported gpu architecture"
please set TORCH_CUDA_ARCH_LIST="7.0 7.5" to choose (e.g. TORCH_CUDA_ARCH_LIST=8.0;9.0)
CMAKE_CUDA_ARCHITECTURES:STRING=52
see CMAKE_CUDA_ARCHITECTURES=75 in the manual
"-DTORCH_CUDA_ARCH_LIST=7.0" and "-DCMAKE_CUDA_ARCHITECTURES=75" are examples
-DCMAKE_CUDA_ARCHITECTURES=90a -DX=1
-- CMAKE_CUDA_ARCHITECTURES: FALSE
-- Added CUDA NVCC flags for: -gencode;arch=compute_90,code=sm_90;-gencode;arch=compute_90a,code=sm_90a
Not compiling with CUDA kernels for X
-- Doxygen is required to build the documentation
note: 'hash mismatch' in test
warning: unused "No space left on device"
Killed by a test on purpose
  message(WARNING "PyTorch: CUDA cannot be found. Depending on whether you are building "
    message(STATUS "MAGMA not found. Compiling without MAGMA support")
+    "Not compiling with CUDA. Suppress this warning with "
please run cmake -GNinja -DTORCH_CUDA_ARCH_LIST=7.0 yourself
    --   USE_CUDA              : OFF
[ RUN      ] Summary.USE_CUDA : OFF
note: --   USE_CUDA              : OFF
  88 | --   USE_CUDA              : OFF
x.cmake:3: warning: -- MAGMA not found. Compiling without MAGMA support
-- CMAKE_CUDA_ARCHITECTURES: 52
TORCH_CUDA_ARCH_LIST="7.0" python setup.py install
    nvcc fatal   : Unsupported gpu architecture 'compute_50'
echo "nvcc fatal   : Unsupported gpu architecture 'compute_50'"
Building wheel torch_xla-2.9.0
Building wheel torch-2.10.0.post2
Building wheel torch-2.10.0.dev20260101+cu130
Building wheel torch-2.10.0rc3
--   TORCH_VERSION         : 2.10.0a0+gitdeadbee
"""  # noqa: E501 - lines as they are printed


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


def named(matrix: Matrix, id_: str) -> Variant:
    return next(v for v in matrix.variants if v.id == id_)


@pytest.fixture(scope="module")
def sm90(matrix: Matrix) -> Variant:
    return named(matrix, "sm90-avx512")


@pytest.fixture(scope="module")
def cpu(matrix: Matrix) -> Variant:
    return named(matrix, "cpu-avx2")


GOOD_CPU = """\
--   USE_CUDA              : OFF
-- USE_CUDA: ON
-- MAGMA not found. Compiling without MAGMA support
CMake Warning at x:1 (message): Not compiling with CUDA. Suppress this warning
"""


def test_no_line_of_a_good_build_trips_a_rule(sm90: Variant, cpu: Variant) -> None:
    for text, variant in ((GOOD, sm90), (GOOD_CPU, cpu)):
        assert [line for line in text.splitlines() if first_match(line, variant)] == []


SAMPLES = [(rule, line) for rule in RULES for line in rule.samples]


@pytest.mark.parametrize(("rule", "line"), SAMPLES, ids=[rule.id for rule, _ in SAMPLES])
def test_each_rule_matches_the_lines_of_its_failure(
    sm90: Variant, cpu: Variant, rule: LogRule, line: str
) -> None:
    variant, other = (sm90, cpu) if "gpu" in rule.kinds else (cpu, sm90)
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


# --- reading ---


def record(**values: object) -> bytes:
    return b"@nix " + json.dumps(values).encode()


def test_the_structured_log_of_nix_names_the_derivation_of_a_line(sm90: Variant) -> None:
    own, other = (f"/nix/store/{'a' * 32}-{n}.drv" for n in (f"{sm90.pname}-2.10.0", "magma-2.9"))
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
    reader = LogReader(sm90)
    assert [text for raw in lines[:2] for text in reader.read(raw)] == [
        "building magma-2.9",
        "magma-2.9> --   USE_CUDA              : OFF",
    ]
    assert (reader.phase, reader.dependency, reader.stop) == ("dependencies", "magma-2.9", None)
    assert [text for raw in lines[2:] for text in reader.read(raw)] == [
        f"building {sm90.pname}-2.10.0",
        "[3/90] Building",
        "error: boom",
        "  at x",
        "a warning of another program",
    ]
    assert (reader.phase, reader.where, reader.done) == ("build", "ssh://thor", 3)


def test_a_damaged_record_is_shown_as_text() -> None:
    reader = NixLogReader()
    damaged = [b"{torn", b'{"action":"msg","msg":7}', b"\xff", b"[" * 100_000]
    damaged += [b'{"action":"result","id":1,"type":101,"fields":[%s]}' % (b"9" * 5000)]
    for rest in damaged[:3]:
        assert [line.text for line in reader.read(b"@nix " + rest)] == [
            "@nix " + rest.decode(errors="replace")
        ]
    for rest in damaged:
        assert list(reader.read(b"@nix " + rest))
        assert list(LogReader(None).read(b"@nix " + rest))


def fed(variant: Variant, lines: Sequence[str]) -> LogReader:
    reader = LogReader(variant)
    for text in lines:
        list(reader.read(text.encode()))
    return reader


def cause(reader: LogReader) -> str:
    """Return the id of the rule that names the failure."""
    return reader.diagnosis().rule


STEPS = [f"[{n}/100] x" for n in range(1, 40)]
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
        (
            ["Building in Nix mode", "python3.13-x> Running phase: buildPhase"],
            "dependencies",
            (0, 0),
        ),
    ],
)
def test_phases_and_ninjas_steps_are_followed(
    sm90: Variant, lines: list[str], phase: str, steps: tuple[int, int]
) -> None:
    reader = fed(sm90, lines)
    assert (reader.phase, reader.done, reader.total) == (phase, *steps)


KILLED = "g++: fatal error: Killed signal terminated program cc1plus"
WRAPPED = [
    "CMake Error at cmake/cmake_install.cmake:77 (file):",
    "  file INSTALL cannot find",
    '  "/build/source/cmake/Modules/FindCUDAToolkit.cmake": No such file or',
    "  directory.",
    "Call Stack (most recent call first):",
    "  cmake_install.cmake:77 (include)",
]
OTHERS = [f"[{n}/100] x" for n in range(11, 42)] + ["x.cpp:1: warning: y"] * 300
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


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (WRAPPED, "find-cuda-toolkit"),
        ([line.strip() for line in WRAPPED[1:]], ""),  # its parts alone are no message
        # The failure of a step names the failure until ninja ends.
        (["[10/100] x", "FAILED: a.o", KILLED, *OTHERS], "out-of-memory"),
        (["[10/100] x", "FAILED: a.o", KILLED, *OTHERS, "[1/50] x", *["y"] * 300], ""),
        (["[1/90] x", "FAILED: x", "nvcc error   : 'cicc' died due to signal 11 (x)"], ""),
        *((["[1/90] x", KERNEL.format(n)], "") for n in ("chrome", "java")),
        *((["[1/90] x", KERNEL.format(n)], "out-of-memory") for n in ("cc1plus", "cicc")),
        (["Running phase: buildPhase", IMPORT], ""),
        (["Running phase: pythonImportsCheckPhase", IMPORT], "import-check"),
        ([UNKNOWN], "unsupported-architecture"),
        ([*STEPS, UNKNOWN], "unknown-architecture"),
        # A match far above the end does not name the failure,
        *(([early, *["compiling"] * 300, "x.cpp:3: error: boom"], "") for early in (
            "fatal: unable to access 'https://x/': Could not resolve host: x",
            KILLED,
            "cc1plus: fatal error: No space left on device",
            HASHES[0],
        )),
        # but one of Nix itself does, until another builder takes the build.
        ([NOT_THERE, *["later"] * 300], "not-there"),
        ([*HASHES, *["later"] * 100], "hash-mismatch"),
        ([GONE, *MACHINES * 300, NO_MACHINE], "builder-unreachable"),
        ([GONE, *MACHINES * 300, "Running phase: unpackPhase", *["compiling"] * 300], ""),
        ([KILLED, "Running phase: buildPhase"], ""),
    ],
)  # fmt: skip
def test_the_lines_that_name_a_failure(sm90: Variant, lines: list[str], wanted: str) -> None:
    reader = fed(sm90, lines)
    assert cause(reader) == wanted
    assert len(reader.tail) <= TAIL


def test_a_message_of_cmake_is_shown_as_one_line(sm90: Variant) -> None:
    found = fed(sm90, WRAPPED).diagnosis()
    assert "file INSTALL cannot find" in found.matches[0].text


NO_HEADER = "/build/x.cpp:3:10: fatal error: fmt/format.h: No such file or directory"
STEP = "FAILED: c10/x.cpp.o "


@pytest.mark.parametrize(
    ("lines", "headline"),
    [
        (["[1/90] x", STEP, "c++ -o x", NO_HEADER, "x.cpp:9:1: error: later"], NO_HEADER),
        (["[1/90] x", STEP, "c++ -o x", "[2/90] x"], STEP.strip()),
        (["[1/90] x", STEP, "  3 | error: quoted", "x:1: warning: error: z"], STEP.strip()),
        (["[1/90] x", "x.cpp:1: error: of a test that goes on", "[2/90] x"], ""),
        (["x.cpp:1: error: of configure", "Running phase: buildPhase"], ""),
        (["[1/90] x", STEP, NO_HEADER, "[1/95] x"], ""),
        (["a.o: undefined reference to `f'", "collect2: error: x"],
         "a.o: undefined reference to `f'"),
        (
            ["CMake Error at a.cmake:73 (message):", "  The C++ compiler", "    is broken", "-- x"],
            "CMake Error at a.cmake:73 (message): The C++ compiler is broken",
        ),
        (["torch.X: y", "ModuleNotFoundError: No module named 'yaml'"],
         "ModuleNotFoundError: No module named 'yaml'"),
        (["[1/90] x", STEP, 'x.cu(3): error: class "p" has no member "c"'],
         'x.cu(3): error: class "p" has no member "c"'),
    ],
)  # fmt: skip
def test_the_first_error_is_the_headline_if_no_rule_names_more(
    sm90: Variant, lines: list[str], headline: str
) -> None:
    found = fed(sm90, lines).diagnosis()
    assert (found.headline.text if found.headline else "") == headline
    assert not found.rule


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
