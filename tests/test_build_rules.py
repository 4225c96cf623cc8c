"""What build logs say: each rule on lines as PyTorch, CMake, nvcc and Nix print them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from build_pytorch.base.console import clock
from build_pytorch.build.build_progress import BuildProgress
from build_pytorch.build.first_error import fails_again
from build_pytorch.build.log_reader import TextLogReader
from build_pytorch.build.log_rules import RULES, BuildPart, LogMatcher, LogRule, is_interesting
from build_pytorch.build.schedule import ordered
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.nix.log_format import LogLine, NixLogReader

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
    matcher.line(BEFORE[0], "downloading")
    matcher.message(BEFORE[1])
    if line.startswith("CMake "):
        return matcher.message(line)
    if not is_interesting(line):
        return None
    parts: tuple[BuildPart, ...] = ("compiling", "downloading", "importing")
    return next(filter(None, (matcher.line(line, part) for part in parts)), None)


def named(matrix: Matrix, *ids: str) -> list[Variant]:
    return [next(v for v in matrix.variants if v.id == id_) for id_ in ids]


@pytest.fixture(scope="module")
def sm90(matrix: Matrix) -> Variant:
    return named(matrix, "sm90-avx512")[0]


@pytest.fixture(scope="module")
def cpu(matrix: Matrix) -> Variant:
    return named(matrix, "cpu-avx2")[0]


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


def test_an_architecture_is_named_outside_the_steps_of_ninja_and_does_not_stop(
    sm90: Variant,
) -> None:
    line = "nvcc fatal   : Unsupported gpu architecture 'compute_50'"
    rule = LogMatcher(sm90).line(line, "downloading")
    assert rule
    assert (rule.id, rule.stops) == ("unsupported-architecture", False)


def test_every_rule_has_samples_and_says_what_to_do() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.samples for rule in RULES)
    stops = [rule.stops for rule in RULES]
    assert stops == sorted(stops, reverse=True)  # the certain rules first
    assert all(len(rule.meaning) > 10 and len(rule.fix) > 10 for rule in RULES)


# --- reading ---


def record(**values: object) -> bytes:
    return b"@nix " + json.dumps(values).encode()


def test_the_structured_log_of_nix_names_the_derivation_of_a_line() -> None:
    reader = NixLogReader()
    drv = "/nix/store/abc-torch.drv"
    lines = [
        record(action="start", id=7, level=3, type=105, text="", fields=[drv, "ssh://thor", 1, 1]),
        record(action="result", id=7, type=104, fields=["buildPhase"]),
        record(action="result", id=7, type=101, fields=["\x1b[1m[3/9]\x1b[0m Building"]),
        record(action="stop", id=7),
        record(action="msg", level=0, msg="error: boom\n  at x"),
        b"a warning of another program",
    ]
    found = [line for raw in lines for line in reader.read(raw)]
    assert [(x.derivation, x.text, x.phase, x.where) for x in found] == [
        (drv, "", "", "ssh://thor"),
        (drv, "", "buildPhase", ""),
        (drv, "[3/9] Building", "", ""),
        ("", "error: boom", "", ""),
        ("", "  at x", "", ""),
        ("", "a warning of another program", "", ""),
    ]


def test_plain_output_belongs_to_the_variant_unless_it_is_named_otherwise() -> None:
    package = "pytorch-python313-cuda13_0-sm90-avx512"
    reader = TextLogReader(package)
    name = "python3.13-pytorch210-python313-cuda13_0-sm90-avx512"
    lines = [f"{name}> [1/9] x", "magma-2.9.0> --   USE_CUDA : OFF", "Building in Nix mode"]
    found = [line for raw in lines for line in reader.read(raw.encode())]
    assert [(line.derivation, line.text) for line in found] == [
        (package, "[1/9] x"),
        ("magma-2.9.0", "--   USE_CUDA : OFF"),
        ("", "Building in Nix mode"),
    ]


def test_plain_output_without_names_belongs_to_what_is_being_built() -> None:
    package = "pytorch-python313-cuda13_0-sm90-avx512"
    reader = TextLogReader(package)
    store = "/nix/store/" + "a" * 32
    lines = [
        "Building in Nix mode",
        f"building '{store}-magma-2.9.0.drv'...",
        "-- CMAKE_CUDA_ARCHITECTURES: 50;60;70",
        f"building '{store}-python3.13-pytorch210-python313-cuda13_0-sm90-avx512-2.10.0.drv'...",
        "[1/9] x",
    ]
    owners = [line.derivation for raw in lines for line in reader.read(raw.encode())]
    assert owners == [package, "", "magma-2.9.0", "", package]


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


def fed(variant: Variant, lines: Sequence[str], *, own: bool = True) -> BuildProgress:
    progress = BuildProgress(variant)
    reader = TextLogReader(variant.package)
    for text in lines:
        for line in reader.read(text.encode()):
            progress.see(line, own=own)
    return progress


def test_phases_and_ninjas_steps_are_followed(sm90: Variant) -> None:
    assert fed(sm90, ["Running phase: unpackPhase"]).phase == "unpack"
    assert fed(sm90, ["unpacking sources", "configuring"]).phase == "configure"
    assert fed(sm90, ["*** Configuring CMake..."]).phase == "configure"
    progress = fed(sm90, ["x", "[17/7213] Building CXX object a.o"])
    assert (progress.phase, progress.done, progress.total) == ("build", 17, 7213)

    # The small run of ninja by setup.py is not counted.
    progress = fed(sm90, ["[3/4] Generating ATen declarations_yaml"])
    assert (progress.done, progress.total) == (0, 0)
    progress = fed(sm90, ["[3/4] Generating ATen declarations_yaml", "[1/1450] Building CXX a.o"])
    assert (progress.done, progress.total) == (1, 1450)


@pytest.mark.parametrize("digits", [8, 4301, 60_000])
def test_numbers_of_any_length_are_read(sm90: Variant, digits: int) -> None:
    lines = ["[1/100] x", f"[1/{'9' * digits}] x", f"[{'9' * digits}/{'9' * digits}] x", "[9/8] x"]
    assert fed(sm90, lines).total == 100


def test_a_message_of_cmake_is_read_although_it_is_wrapped(sm90: Variant) -> None:
    wrapped = [
        "CMake Error at cmake/cmake_install.cmake:77 (file):",
        "  file INSTALL cannot find",
        '  "/build/source/cmake/Modules/FindCUDAToolkit.cmake": No such file or',
        "  directory.",
        "Call Stack (most recent call first):",
        "  cmake_install.cmake:77 (include)",
    ]
    cause = fed(sm90, wrapped).cause()
    assert cause
    assert cause.rule.id == "find-cuda-toolkit"
    assert "file INSTALL cannot find" in cause.text
    # The parts of the message alone are no message.
    assert fed(sm90, [line.strip() for line in wrapped[1:]]).cause() is None


def test_a_failure_of_a_step_names_the_failure_until_ninja_ends(sm90: Variant) -> None:
    failed = ["[10/100] x", "FAILED: a.o", "g++: fatal error: Killed signal terminated program"]
    others = [f"[{n}/100] x" for n in range(11, 42)] + ["x.cpp:1: warning: y"] * 300
    cause = fed(sm90, [*failed, *others]).cause()
    assert cause
    assert cause.rule.id == "out-of-memory"
    assert fed(sm90, [*failed, *others, "[1/50] x", *["y"] * 300]).cause() is None


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
    progress = fed(sm90, lines)
    assert progress.first_error.text == headline
    assert progress.cause() is None


@pytest.mark.parametrize(
    ("cause", "message", "again"),
    [
        ("cccl-headers", "", True),
        ("hash-mismatch", "", True),
        ("patch-failed", "Hunk #1 FAILED at 12.", True),
        ("cuda-off", "", True),
        ("", NO_HEADER, True),
        ("", "x.cu(7): error: no", True),
        ("out-of-memory", "g++: fatal error: Killed", False),
        ("disk-full", "x.cpp:1: fatal error: No space left on device", False),
        ("network", "", False),
        ("timed-out", "", False),
        ("illegal-instruction", "", False),
        ("", "exit code 1", False),
        ("", STEP, False),
        ("", "x.cpp:1:1: internal compiler error: Segmentation fault", False),
    ],
)
def test_a_failure_that_lies_in_the_recipe_comes_again(
    cause: str, message: str, again: bool
) -> None:
    assert fails_again(cause, message) is again


def test_what_others_print_or_a_crash_names_no_failure(sm90: Variant) -> None:
    assert fed(sm90, ["--   USE_CUDA              : OFF"], own=False).cause() is None
    crash = "nvcc error   : 'cicc' died due to signal 11 (Invalid memory)"
    assert fed(sm90, ["[1/90] x", "FAILED: x", crash]).cause() is None
    kernel = "[Sat Nov 21 10:00:00 2026] Out of memory: Killed process 4711 ({}) total-vm:91kB"
    for name, is_ours in {"chrome": False, "java": False, "cc1plus": True, "cicc": True}.items():
        cause = fed(sm90, ["[1/90] x", "[2/90] x", kernel.format(name)]).cause()
        assert bool(cause) == is_ours, name


def test_the_import_check_is_named_by_its_phase(sm90: Variant) -> None:
    line = "ImportError: libcuda.so.1: cannot open shared object file"
    assert fed(sm90, ["Running phase: buildPhase", line]).cause() is None
    for phase in (
        "Running phase: pythonImportsCheckPhase",
        "Check whether the following modules can be imported: torch",
    ):
        cause = fed(sm90, [phase, line]).cause()
        assert cause
        assert cause.rule.id == "import-check"


@pytest.mark.parametrize(
    "early",
    [
        "fatal: unable to access 'https://x/': Could not resolve host: x",
        "g++: fatal error: Killed signal terminated program cc1plus",
        "cc1plus: fatal error: No space left on device",
        "error: hash mismatch in fixed-output derivation '/nix/store/x.drv':",
    ],
)
def test_a_match_far_above_the_end_does_not_name_the_failure(sm90: Variant, early: str) -> None:
    assert fed(sm90, [early, *["compiling"] * 300, "x.cpp:3: error: boom"]).cause() is None


def test_what_nix_itself_says_last_names_the_failure_however_much_follows(sm90: Variant) -> None:
    progress = BuildProgress(sm90)
    for text in ["error: unable to download 'https://x': HTTP error 404", *["later"] * 300]:
        progress.see(LogLine("", text), own=False)
    found = progress.cause()
    assert found
    assert found.rule.id == "not-there"


def test_a_builder_that_cannot_be_reached_is_named_until_another_one_takes_the_build(
    sm90: Variant,
) -> None:
    """Nix says of each dependency that it found no machine, and ends with another error."""
    progress = BuildProgress(sm90)
    gone = "cannot build on 'ssh://thor': error: cannot connect to 'thor': no route"
    end = "error: a 'aarch64-linux' with features {} is required to build '/nix/store/x.drv', but"
    for text in [gone, *["Failed to find a machine for remote build!"] * 300, end]:
        progress.see(LogLine("", text), own=False)
    found = progress.cause()
    assert found
    assert found.rule.id == "builder-unreachable"
    progress.see(LogLine("x.drv", "", began=True), own=True)
    for text in ["compiling"] * 300:
        progress.see(LogLine("x.drv", text), own=True)
    assert progress.cause() is None


def test_the_two_hashes_of_a_mismatch_are_kept(sm90: Variant) -> None:
    a, b = "sha256-" + "A" * 43 + "=", "sha256-" + "B" * 42 + "A="
    lines = [
        "error: hash mismatch in fixed-output derivation '/nix/store/x-source.drv':",
        f"         specified: {a}",
        f"            got:    {b}",
    ]
    progress = fed(sm90, [*lines, *["later"] * 100])
    cause = progress.cause()
    assert cause
    assert cause.rule.id == "hash-mismatch"
    assert len(progress.tail) == 30


# --- how long it takes ---


def test_durations_are_written_as_clocks_are() -> None:
    assert [clock(7), clock(754), clock(9296)] == ["0:07", "12:34", "2:34:56"]


@pytest.mark.parametrize(
    ("memory", "jobs"), [(16, 2), (32, 6), (64, 12), (128, 25), (4, 1), (256, 32)]
)
def test_compile_jobs_follow_from_memory(matrix: Matrix, memory: int, jobs: int) -> None:
    build = matrix.variants[0].release.build
    assert build.cores(memory, cpus=64) == jobs
    assert build.cores(memory, cpus=4) == min(jobs, 4)


# --- order ---


def test_canaries_come_first_and_cpu_only_variants_last(matrix: Matrix) -> None:
    ids = [v.id for v in ordered(matrix.variants)]
    assert sorted(ids) == sorted(v.id for v in matrix.variants)
    assert ids[:3] == ["sm120-avx2", "sm110-armv8_2", "cpu-avx2"]
    assert ids[-3:] == ["cpu-avx512", "cpu-avx512bf16", "cpu-avx512vnni"]
