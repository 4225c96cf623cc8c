"""The smoke script by itself: with a real torch, with none, and with ones that break."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from smoke_faults import FAULTS, Fault, noticed
from smoke_reports import Raw, change, raw, report, without_gpu

from build_pytorch.base import installed_torch
from build_pytorch.matrix import known_hardware
from build_pytorch.smoke import script, smoke_tests

SCRIPT = Path(script.__file__)
WHOLE = Path(__file__).parent / "whole"
REAL = os.environ.get("BUILD_PYTORCH_TEST_TORCH", "")
needs_torch = pytest.mark.skipif(
    not REAL, reason="BUILD_PYTORCH_TEST_TORCH names no Python that has torch"
)


def run(python: str, *argv: str, code: int = 0, **env: str) -> Raw:
    """Return the report, which is all of stdout and lists every test."""
    done = subprocess.run(
        [python, str(SCRIPT), *argv],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr
    document: Raw = json.loads(done.stdout)
    report(document)  # the command can read it
    names = [test.name for test in script.tests(document["companions"])]
    assert [test["name"] for test in document["tests"]] == names
    return document | {"stderr": done.stderr}


def messages(document: Raw) -> dict[str, str]:
    return {test["name"]: test["message"] for test in document["tests"]}


def outcome(torch: Any, name: str, place: str = "cuda:0") -> tuple[str, str]:
    """The outcome of one test in a process of its own, and its message."""
    (test,) = [test for test in script.tests(smoke_tests.COMPANIONS) if test.name == name]
    result = script.tested(torch, place, test, time.monotonic() + 60)
    return result["outcome"], result["message"]


def test_it_imports_nothing_but_the_standard_library_and_torch() -> None:
    for file in (script.__file__, smoke_tests.__file__):
        text = Path(file).read_text()
        ast.parse(text, feature_version=(3, 10))
        names = set(re.findall(r"(?m)^ *(?:import|from) (\w+)", text))
        assert "importlib" in names <= sys.stdlib_module_names


def test_every_test_has_a_name_of_its_own_and_every_companion_a_pairing_and_a_kernel() -> None:
    rows = script.tests(smoke_tests.COMPANIONS)
    assert len({test.name for test in rows}) == len(rows)
    assert all(test.name.split()[0] == test.device for test in rows)
    assert set(smoke_tests.COMPANIONS) == set(known_hardware.load().companion)
    for name in smoke_tests.COMPANIONS:
        assert sorted(it.device for it in rows if it.companion == name) == ["cpu", "cpu", "cuda"]


# --- torches that break ---

GOOD = """
import os, signal, sys, time
from types import SimpleNamespace as Part
__version__ = "2.10.0"
version = Part(cuda="13.0", hip=None)
_C = Part(_cuda_getArchFlags=lambda: "sm_90")
__config__ = Part(show=lambda: "config", parallel_info=lambda: "")
manual_seed = set_float32_matmul_precision = lambda _: None
backends = Part(
    cudnn=Part(is_available=lambda: True, version=lambda: 91300),
    cpu=Part(get_cpu_capability=lambda: "AVX512"),
)
cuda = Part(
    has_magma=True,
    is_available=lambda: True,
    device_count=lambda: 1,
    get_device_capability=lambda device: (9, 0),
    get_device_properties=lambda index: Part(name="NVIDIA H200", major=9, minor=0),
)
double = bfloat16 = float16 = float32 = None
def randn(*shape):
    raise RuntimeError("randn is broken")
"""
"""The part of torch that the script needs to start its tests; each of them fails."""
TENSOR = """
class Tensor:
    shape = ()
    device = Part(type="cuda")
    def __getattr__(self, name):
        return lambda *_, **__: self
    for name in ("add", "matmul", "rmul", "sub", "truediv"):
        locals()[f"__{name}__"] = lambda self, other: self
    def item(self):
        return float("0")
randn = eye = ones = lambda *shape: Tensor()
"""


def fake_torch(folder: Path, code: str) -> str:
    """Write a torch into a folder, and return the folder for PYTHONPATH."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text(code)
    return str(folder)


def torch_of(change: str = "", file: str = "") -> Any:
    """A torch in this process, whose tensors are all the same."""
    torch = types.ModuleType("torch")
    exec(f"{GOOD}{TENSOR}{change}", vars(torch))  # noqa: S102 - the code above
    torch.__file__ = file
    return torch


@pytest.mark.parametrize(
    ("change", "message", "tests"),
    [
        ("cuda.has_magma = False", "this PyTorch was built without MAGMA", {"solve magma"}),
        ("cuda.get_device_capability = lambda device: (8, 6)",
         "needs capability 8.9 or newer", {"matmul fp8 rowwise"}),
        ("cuda.get_device_capability = lambda device: (7, 5)",
         "needs capability 8.0 or newer", {"flash attention bf16"}),
        ("__version__ = '2.8.1+cu128'", "needs PyTorch 2.9 or newer", {"grouped matmul bf16"}),
        ("__version__ = '2.9.0a0+git1'", "needs PyTorch 2.9 or newer", set()),
        ("distributed = Part(is_available=lambda: False)",
         "this PyTorch was built without NCCL", {"nccl all-reduce"}),
    ],
)  # fmt: skip
def test_a_test_with_an_unmet_need_is_skipped(change: str, message: str, tests: set[str]) -> None:
    torch = torch_of(change)
    names = [test.name for test in script.tests(()) if test.device == "cuda"]
    skipped = {name for name in names if outcome(torch, name) == ("skipped", message)}
    assert skipped == {f"cuda {test}" for test in tests}


def test_torch_compile_is_skipped_without_a_compiler_or_triton(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    for program, header, says in (
        ("", "other.h", "no C++ compiler"),
        ("g++", "other.h", "no Python.h, the headers of this Python"),
        ("g++", "Python.h", "Triton is not installed"),
    ):
        (tmp_path / header).touch()
        monkeypatch.setattr("shutil.which", lambda _, program=program: program)
        assert outcome(torch_of(), "cuda compile") == ("skipped", says)


CRASH = """
def randn(*shape):
    if shape == (8, 32, 48, 48):
        os.kill(os.getpid(), signal.SIGSEGV)
    raise RuntimeError("only broken")
"""  # of `convolution` and `training`
NO_START = "cuda.is_available = lambda: os.kill(os.getpid(), signal.SIGSEGV)"
LOST = """
cuda.is_available = lambda: False
def init():
    raise RuntimeError("GPU is lost")
cuda.init = init
"""
TWO = """
cuda.device_count = lambda: 2
cuda.get_device_properties = lambda index: Part(name="", major=[9, 12][index], minor=0)
"""
RANDN, BROKEN = "RuntimeError: randn is broken", "RuntimeError: only broken"


@pytest.mark.parametrize(
    ("code", "argv", "cuda", "said"),
    [
        (TWO, ("--capability", "12.0"), {"available": True, "device": 1, "reason": ""},
         {"cpu fft": RANDN, "cuda flash attention bf16": RANDN}),
        (TWO, ("--capability", "8.0"), {"available": True, "device": 0}, {}),
        # A signal is recorded, and the rest goes on.
        (CRASH, (), {}, {"cpu convolution": "ended by SIGSEGV", "cuda fft": BROKEN}),
        (NO_START, ("--companion=torchvision",),
         {"available": False, "crashed": True, "reason": "ended by SIGSEGV"},
         {"cpu training": RANDN, "cuda training": "ended by SIGSEGV",
          "cpu torchvision pairing": "ended by SIGABRT"}),
        (LOST, (), {"available": False},
         {"cuda training": "RuntimeError: GPU is lost; CUDA_VISIBLE_DEVICES is '0'"}),
        ("version.cuda = None; cuda.is_available = lambda: False", (), {"available": False},
         {"cuda training": "built without CUDA; CUDA_VISIBLE_DEVICES is '0'"}),
    ],
)  # fmt: skip
def test_a_torch_that_breaks_hides_no_other_test(
    tmp_path: Path, code: str, argv: tuple[str, ...], cuda: Raw, said: dict[str, str]
) -> None:
    companion(tmp_path, "torchvision", "0.25.0", "import os; os.abort()")
    env: Raw = {"PYTHONPATH": fake_torch(tmp_path, f"{GOOD}{code}\n"), "CUDA_VISIBLE_DEVICES": "0"}
    document = run(sys.executable, *argv, **env)
    assert said.items() <= messages(document).items()
    assert cuda.items() <= document["cuda"].items()
    assert "not run" not in {test["outcome"] for test in document["tests"]}


def test_a_broken_torch_is_reported_in_the_json_and_fails_a_check(tmp_path: Path) -> None:
    for number, (code, says) in enumerate((
        ("raise ImportError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
        ("import os; os._exit(4)", "ended with exit code 4"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "ended by SIGILL"),
        ("x = 1", "AttributeError: module 'torch' has no attribute"),
        # Python puts the folder of a script first.
        ("import judge", "ModuleNotFoundError: No module named 'judge'"),
    )):  # fmt: skip
        path = fake_torch(tmp_path / str(number), code)
        document = run(sys.executable, "--check", code=1, PYTHONPATH=path)
        error = document["torch"]["import_error"]
        assert (says in error, document["stderr"]) == (True, f"{error}\n")
        assert {test["outcome"] for test in document["tests"]} == {"not run"}


def test_a_check_fails_with_what_failed_or_without_the_gpu() -> None:
    document = raw("h200-all-tests")
    document["cuda"]["reason"] = ""
    assert script.failures(document, "") == script.failures(document, "9.0") == []
    change(document, "cpu solve", outcome="failed", message="so")
    change(document, "cpu fft", outcome="not run")
    failed = ["cpu solve: so", "cpu fft: not run", "no GPU of capability 8.0: 9.0"]
    assert script.failures(document, "8.0") == failed
    without_gpu(document, "no driver")
    assert script.failures(document, "9.0")[-1] == "no GPU of capability 9.0: no driver"


def test_nan_and_a_large_error_are_failures() -> None:
    for value, found in (
        ("nan", ("failed", "RuntimeError: the error is nan")),
        ("2e-5", ("failed", "error 2e-05, tolerance 1e-05")),
        ("1e-5", ("passed", "")),
    ):
        torch = torch_of(f"Tensor.item = lambda self: float('{value}')")
        assert outcome(torch, "cpu matmul fp32", "cpu") == found


def test_a_long_error_keeps_its_beginning_its_cause_and_its_end() -> None:
    # NVRTC's names the source first; the recorded report of 1,000 characters has nothing else.
    recorded = json.loads(gzip.decompress((WHOLE / "smoke-h100-no-nvrtc.json.gz").read_bytes()))
    source = messages(recorded["script"])["cuda nvrtc"].removeprefix("RuntimeError: ")
    cause = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0."
    said = installed_torch.explained(RuntimeError(f"{source}\n{cause}\n{source}\nthe end"))
    assert said.startswith("RuntimeError: #ifdef __HIPCC__")
    assert f" ... {cause} ... " in said
    assert said.endswith(" the end")
    assert len(said) <= installed_torch.MOST_TEXT
    assert installed_torch.explained(OSError("no\n file")) == "OSError: no file"


MAPPED = """
import mmap
os.system('echo from a library')
maps = []
for name in {names!r}:
    with open(name) as file:
        maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
"""


def test_libraries_of_another_pytorch_are_seen_and_stdout_is_the_report(tmp_path: Path) -> None:
    # Found by the first whole build: without $ORIGIN in a run path, libtorch_cpu was Debian's.
    own, other = tmp_path / "own lib", tmp_path / "usr"
    names = [own / "libtorch_python.so.2.6", other / "libtorch_cpu.so.2.6.0", own / "libc10.so"]
    names.append(tmp_path / "audio/libtorchaudio.so")  # a companion's
    for name in names:
        name.parent.mkdir(exist_ok=True)
        name.write_text("x")
    code = GOOD + MAPPED.format(names=[str(name) for name in names])
    document = run(sys.executable, PYTHONPATH=fake_torch(tmp_path, code))
    assert document["torch"]["library_folders"] == [str(own), str(other)]


# --- companions ---


def companion(folder: Path, name: str, version: str, code: str = "") -> None:
    info = folder / f"{name}-{version}.dist-info"
    for path, text in {
        folder / name / "__init__.py": code,
        info / "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }.items():
        path.parent.mkdir(parents=True)
        path.write_text(text)


def test_only_the_companion_that_was_asked_for_is_tested_and_must_be_there(tmp_path: Path) -> None:
    companion(tmp_path, "torchvision", "0.25.0", "raise ValueError('was imported')")
    env: Raw = {"PYTHONPATH": fake_torch(tmp_path, GOOD)}
    facts = {"version": "0.25.0", "file": f"{tmp_path}/torchvision/__init__.py"}
    for name, found, says in (
        ("torchvision", facts, "was imported"),
        ("torchaudio", {"version": None, "file": None}, "No module named 'torchaudio"),
    ):
        document = run(sys.executable, "--companion", name, **env)
        assert document["companions"] == {name: found}
        tests = {test["name"] for test in document["tests"] if test["companion"] == name}
        assert len(tests) == 3
        assert all(says in messages(document)[test] for test in tests)


def test_the_run_path_of_a_library_names_the_pytorch_it_was_compiled_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    companion(tmp_path, "torchaudio", "2.10.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    other, here = tmp_path / "other", tmp_path / "torch/lib"
    for folder in (other, here):
        folder.mkdir(parents=True)
        (folder / "libc10.so").touch()
    library, torch = tmp_path / "torchaudio/libtorchaudio.so", torch_of(file=f"{here.parent}/x.py")
    for named, found in (
        (other, ("failed",
         f"RuntimeError: {library.name} was compiled with {other}, and this is {here}")),
        (here, ("passed", "")),
        ("/nowhere",
         ("skipped", "nothing in it names the PyTorch that it was compiled with")),
    ):  # fmt: skip
        library.write_bytes(f"ELF\0/nowhere:{named}\0".encode())
        assert outcome(torch, "cpu torchaudio pairing", "cpu") == found


# --- processes ---


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (lambda: {"text": "x" * 200_000}, {"text": "x" * 200_000}),
        (lambda: os.kill(os.getpid(), 40), {"why": "ended by signal 40"}),
        (lambda: os._exit(7), {"why": "ended with exit code 7"}),
        (lambda: int("x"), {"why": "ValueError: invalid literal for int() with base 10: 'x'"}),
        (lambda: time.sleep(100), {"why": "still running when the time limit was reached"}),
    ],
)
def test_a_function_in_a_process_returns_its_facts_or_how_it_ended(
    function: Any, answer: Raw
) -> None:
    seconds = 0.3 if "still" in str(answer) else 60
    assert script.in_process(function, time.monotonic() + seconds, "why") == answer


HANGS = f"""{GOOD}
def randn(*shape):
    if shape == (8, 32, 48, 48):
        open(os.environ["PIDS"], "w").write(str(os.getpid()))
        time.sleep(1000)
    raise OSError
"""


def test_a_hang_ends_at_the_limit_or_with_the_script(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    env: Raw = {"PYTHONPATH": fake_torch(tmp_path, HANGS), "PIDS": str(pids)}
    document = run(sys.executable, "--limit", "6", **env)
    still = "still running when the time limit was reached"
    said = {"cpu convolution": still, "cpu matmul fp32": "OSError", "cpu training": ""}
    assert said.items() <= messages(document).items()
    assert not is_running(pids)
    pids.unlink()
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT)], env={**os.environ, **env}, stdout=subprocess.DEVNULL
    )
    wait_for(lambda: pids.exists() and pids.read_text() != "")
    process.kill()
    process.wait()
    wait_for(lambda: not is_running(pids))


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pids: Path) -> bool:
    """Whether the process whose number is in a file still runs, and is no zombie."""
    try:
        return Path(f"/proc/{pids.read_text()}/stat").read_text().rpartition(")")[2][1] != "Z"
    except FileNotFoundError:
        return False


# --- a real torch ---


@needs_torch
def test_a_real_torch_passes_all_cpu_tests_within_tolerance() -> None:
    document = run(REAL, CUDA_VISIBLE_DEVICES="")
    for test in document["tests"]:
        assert test["outcome"] == ("passed" if test["name"].startswith("cpu ") else "skipped"), test
    assert document["torch"]["cpu_capability"] in document["torch"]["config"]


@needs_torch
@pytest.mark.parametrize(
    "fault",
    [fault for fault in FAULTS if fault.test.startswith("cpu ") and "torch" not in fault.test],
    ids=lambda fault: f"{fault.test}-{fault.outcome}",
)
def test_a_fault_is_noticed(fault: Fault) -> None:
    found = noticed(REAL, fault)
    assert found["noticed"], found
