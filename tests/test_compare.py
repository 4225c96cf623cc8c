"""`invoke compare`: statistics, rounds, what may be compared, what is printed and recorded."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Project, error_line, unfolded
from smoke_reports import remember, result_in_store, variant

from build_pytorch.base.console import WIDTH
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.files import exclusive_lock
from build_pytorch.compare import workloads
from build_pytorch.compare.comparison import ComparedBuild, ComparedTorch, find_build, wheel
from build_pytorch.compare.measurement import (
    ROUNDS,
    Estimate,
    MeasuredSetting,
    ProcessReport,
    Round,
    Verdict,
    estimates,
    measure,
)
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.results.ledger import read

NAMES = [workloads.STARTS["cpu"], *workloads.WORKLOADS["cpu"]]
UNDECIDED = {Verdict.EQUAL, Verdict.NOISY}


# --- statistics ---


def drawn(
    seed: int, *, rounds: int = 8, noise: float = 0.01, factor: float = 1.0, slow: float = 0.0
) -> list[Round]:
    """Rounds of two builds; other work makes a part `slow` of the processes 1.35 times slower."""
    draw = random.Random(seed)

    def side(factor: float) -> dict[str, float]:
        factor *= 1.35 if draw.random() < slow else 1.0
        return {name: factor * math.exp(draw.gauss(0, noise)) for name in NAMES}

    return [(side(factor), side(1.0)) for _ in range(rounds)]


def of_all(rounds: Sequence[Round]) -> list[Estimate]:
    """The estimate of each workload, and at the end that of the mean, which decides."""
    found, mean = estimates(rounds)
    return [*found.values(), mean]


def test_a_verdict_needs_an_interval_inside_or_outside_three_percent() -> None:
    expected = {1.0: Verdict.EQUAL, 1.1: Verdict.SLOWER, 0.9: Verdict.FASTER}
    for factor, verdict in expected.items():
        for estimate in of_all(drawn(1, factor=factor, noise=0.001)):
            assert estimate.verdict is verdict
            assert estimate.low <= estimate.ratio <= estimate.high
            assert math.isclose(estimate.ratio, factor, rel_tol=0.015)


@pytest.mark.parametrize(
    ("settings", "least", "most", "means"),
    [
        ({"factor": 1.03, "noise": 0.002}, 0, 0.05, UNDECIDED),
        ({"slow": 0.4, "noise": 0.05}, 0, 0.02, UNDECIDED),
        ({"factor": 1.1, "noise": 0.02}, 0.9, 1, {Verdict.SLOWER}),
        ({"factor": 1.1, "slow": 0.1, "rounds": 20}, 0.7, 1, {Verdict.SLOWER, Verdict.NOISY}),
    ],
)
def test_how_often_a_build_is_called_slower(
    settings: dict[str, Any], least: float, most: float, means: set[Verdict]
) -> None:
    found = [of_all(drawn(seed, **settings)) for seed in range(12)]
    every = [estimate.verdict for each in found for estimate in each]
    assert least <= every.count(Verdict.SLOWER) / len(every) <= most
    assert every.count(Verdict.FASTER) <= 0.02 * len(every)
    assert {each[-1].verdict for each in found} <= means


def test_one_disturbed_process_or_a_missing_workload_changes_no_other_ratio() -> None:
    rounds = drawn(3, noise=0.004)
    rounds[4] = (dict.fromkeys(NAMES, 9.0), rounds[4][1])
    assert all(math.isclose(each.ratio, 1, abs_tol=0.01) for each in of_all(rounds))
    del rounds[3][1]["softmax"]
    assert set(NAMES) - set(estimates(rounds)[0]) == {"softmax"}
    with pytest.raises(BuildPytorchError, match="no workload that both can run"):
        estimates([({}, {})])


# --- rounds, and what a setting shows ---


def measured(
    *, noise: float = 0.0, over_after: int = 1000, a: Any = (), b: Any = ()
) -> tuple[MeasuredSetting, str]:
    """The result of processes that are not started, and their order; `a`, `b`: other facts."""
    called: list[str] = []
    draw = random.Random(1)

    def run(side: str, changes: Any) -> ProcessReport:
        called.append(side)
        facts = {"gpu": "", "threads": 1, "errors": {}, **dict(changes)}
        names = [name for name in NAMES if name not in facts["errors"]]
        seconds = {name: math.exp(draw.gauss(0, noise)) for name in names}
        return msgspec.convert({**facts, "seconds": seconds}, ProcessReport)

    runs = [partial(run, "A", a), partial(run, "B", b)]
    result = measure(runs, "1 thread", 1, over_after, lambda: float(len(called)))
    return result, "".join(called)


def test_processes_alternate_a_b_b_a_for_eight_rounds_if_intervals_are_narrow() -> None:
    result, called = measured()
    assert called == "ABBA" * 4
    assert {each.verdict for each in result.workloads.values()} == {Verdict.EQUAL}
    for over_after, rounds in ((31, 16), (0, 8)):
        assert len(measured(noise=0.2, over_after=over_after)[0].rounds) == rounds


def test_other_threads_and_a_workload_that_only_a_lacks_are_findings() -> None:
    seven, no_eigh = {"threads": 7}, {"errors": {"eigh": "RuntimeError: no LAPACK"}}
    ran, lacks = "ran with 7 threads where 1 were asked", "cannot run eigh: RuntimeError: no LAPACK"
    for a, b, verdict, says in (
        ({}, {}, Verdict.EQUAL, []),
        (seven, {}, Verdict.SLOWER, [f"A {ran}"]),
        ({}, seven, Verdict.NOISY, [f"B {ran}"]),  # nobody can tell
        (seven, seven, Verdict.SLOWER, [f"B {ran}", f"A {ran}"]),
        (no_eigh, {}, Verdict.SLOWER, [f"A {lacks}"]),
        ({}, no_eigh, Verdict.EQUAL, [f"B {lacks}"]),
        (no_eigh, no_eigh, Verdict.EQUAL, []),  # such as a GPU that is too old
    ):
        setting, _ = measured(a=a, b=b)
        assert setting.reasons == ("no difference, 1.00 (1.00 to 1.00)", *says)
        assert setting.verdict is verdict


# --- the command ---

ID = "cpu-avx2"
LINK = f"result-pytorch-python313-{ID}"
TORCH = {"version": "2.10.0", "file": "/torch/__init__.py", "library_bytes": 450_000_000}
PYTHON = """#!{program}
import json, os, random, sys
if sys.argv[1].endswith("installed_torch.py"):
    print(json.dumps({{"python": "3.13.1"}}))
    print(json.dumps({torch!r}))
else:
    draw = random.Random(__import__('time').time_ns())
    seconds = {{name: {factor} * draw.uniform(1, {noise}) for name in {names}}}
    threads = int(os.environ.get("OMP_NUM_THREADS") or 1)
    gpu = "" if sys.argv[2] == "cpu" else "GPU " + sys.argv[2]
    print(json.dumps({{"gpu": gpu, "threads": threads, "seconds": seconds, "errors": {{}}}}))
"""


def python(path: Path, *, factor: float = 1.0, noise: float = 1.004, **torch: Any) -> str:
    """A program that stands in for a Python: it prints a report at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"program": sys.executable, "torch": TORCH | torch, "names": NAMES}
    path.write_text(PYTHON.format(factor=factor, noise=noise, **values))
    path.chmod(0o755)
    return str(path)


def compare(project: Project, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return project.run("invoke", "compare", *argv, "--minutes", "0.001", env=env)


@pytest.mark.parametrize(
    ("factor", "noise", "code", "verdict"),
    [(1.0, 1.004, 0, "no difference"), (1.2, 1.004, 1, "slower"), (1.0, 3.0, 3, "too noisy")],
)
def test_two_pythons_are_compared_in_a_table_and_json(
    project: Project, tmp_path: Path, factor: float, noise: float, code: int, verdict: str
) -> None:
    a = python(tmp_path / "a", factor=factor, noise=noise)
    b = python(tmp_path / "b", noise=noise)
    done = compare(project, a, "--against", b, "--threads", "1", "--json")
    found, lines = json.loads(done.stdout), done.stderr.splitlines()
    assert done.returncode == found["exit_code"] == code, done.stderr
    (setting,) = found["settings"]
    assert setting["mean"]["verdict"] == verdict
    assert (found["a"]["label"], found["b"]["label"], found["recorded"]) == (a, b, False)
    ratios = {name: each["ratio"] for name, each in setting["workloads"].items()}
    assert set(ratios) == set(NAMES)
    first, second, *_ = sorted(NAMES, key=lambda name: abs(ratios[name] - 1), reverse=True)
    rows = [line for line in lines if any(line.startswith(f"  {name}  ") for name in NAMES)]
    for row, name in zip(rows, (first, second), strict=True):
        assert row.startswith(f"  {name:<23}  {ratios[name]:.2f} (")
        assert row.endswith(verdict) or code == 3
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= WIDTH
    assert "below 1 A is faster, above 1 A is slower" in done.stderr
    assert f"A against B, 1 thread: {verdict}, {setting['mean']['ratio']:.2f} (" in done.stderr
    assert "PyTorch 2.10.0, libraries 450 MB, import" in unfolded(done.stderr)
    kept = json.loads((project.root / found["report"]).read_text())
    assert len(kept["settings"][0]["rounds"]) >= 8
    assert kept["machine"].endswith(f", {len(os.sched_getaffinity(0))} cores")
    assert kept["a"]["library_bytes"] == TORCH["library_bytes"]


def test_the_device_is_the_cpu_with_two_numbers_of_threads_or_a_gpu(
    project: Project, tmp_path: Path
) -> None:
    good, cores = python(tmp_path / "good", cuda="13.0"), len(os.sched_getaffinity(0))
    for device, titles in (("cpu", ["1 thread", f"{cores} threads"]), ("1", ["GPU 1"])):
        done = compare(project, good, "--against", good, "--device", device, "--json")
        found = json.loads(done.stdout)
        assert [it["title"] for it in found["settings"]] == titles
        assert found["machine"].endswith("GPU 1" if device == "1" else "cores")


def test_what_cannot_be_compared_is_named(project: Project, tmp_path: Path) -> None:
    matrix = matrix_reader.load(project.root)
    for text, says in (
        ("sm99-avx2", 'no package matches "sm99-avx2"'),
        (ID, f"{LINK} does not exist; run `invoke build {ID}`"),
        ("*", "name one of them"),
        ("/nowhere/python", 'no package matches "/nowhere/python"'),
        ("wheel", "wheel: write wheel:2.10.0 or wheel:2.10.0+cu128"),
        ("wheel:../new", "wheel:../new: write wheel:2.10.0 or wheel:2.10.0+cu128"),
        (python(tmp_path / "empty", error="no torch"),
         f"{tmp_path}/empty: torch does not work: no torch"),
        (python(tmp_path / "odd", file=1), "its output is not a report"),
    ):  # fmt: skip
        with pytest.raises(BuildPytorchError, match=re.escape(says)):
            find_build(matrix, text, None, print)
    good = python(tmp_path / "good")
    with exclusive_lock(project.root, "compare.lock", "compares"):
        done = compare(project, good, "--against", good)
    assert (done.returncode, "another run compares here" in error_line(done)) == (2, True)
    assert not (project.root / ".build-pytorch/reports").exists()


def test_the_wheel_that_is_like_a_torch_has_its_version_and_cuda() -> None:
    for version, cuda, name in (("2.10.0", "12.8", "2.10.0+cu128"), ("2.6.0+x", None, "2.6.0+cpu")):
        torch = ComparedTorch(python="3.13.1", version=version, file="", cuda=cuda)
        assert torch.wheel == f"wheel:{name}"


# --- evidence ---


def test_a_comparison_of_a_result_is_evidence_for_its_recipe_and_its_class_of_machine(
    project: Project, tmp_path: Path, matrix: Matrix
) -> None:
    env, output, inside = result_in_store(tmp_path, project)
    package, b = variant(matrix, ID), python(tmp_path / "b")
    python(inside)
    done = compare(project, ID, "--against", b, **env)
    assert f"{ID}: imports another torch, /torch/__init__.py" in error_line(done)
    python(inside, factor=1.2, file=f"{output}/torch.py")
    for name, says in (
        (str(output), f"A: {output.name[33:]}: PyTorch 2.10.0"),
        (ID, "not recorded: the ledger has no recipe for this result"),
    ):
        done = compare(project, name, "--against", b, "--threads", "1", **env)
        assert (done.returncode, says in done.stdout) == (1, True), done.stdout
    digest = remember(project, package, output)
    assert compare(project, ID, "--against", b, **env).returncode == 1
    (found,) = (event for event in read(project.root).events if event.event == "tested")
    assert (found.by, found.outcome, found.digest, found.output) == (
        "compare", "failed", digest, str(output),
    )  # fmt: skip
    ratio = json.loads((project.root / found.report).read_bytes())["settings"][0]["mean"]["ratio"]
    status = project.run("invoke", "status", "--packages", ID, env=env).stdout
    assert "compared: failed" in status
    text = unfolded(project.run("invoke", "show", ID, env=env).stdout)
    assert f"compare failed at {found.at}: 1 thread: slower, {ratio:.2f}" in text


# --- how good it is: real processes on a busy machine, with a stand-in for torch ---

STAND_IN = '''
"""Hashes bytes where torch computes, with as many threads as OMP_NUM_THREADS says."""
import hashlib, os
from concurrent.futures import ThreadPoolExecutor

THREADS = int(os.environ["OMP_NUM_THREADS"])
POOL = ThreadPoolExecutor(THREADS)
PART = bytes(int(4e5 * float(os.environ.get("FACTOR", 1)) / THREADS))


def get_num_threads():
    return THREADS


class Thing(str):
    __enter__ = __exit__ = lambda self, *_error: None

    def __getattr__(self, name):
        return Thing(name)

    def __call__(self, *_args, **_options):
        if self in {"softmax", "fft"}:
            list(POOL.map(lambda part: hashlib.sha256(part).digest(), [PART] * THREADS))
        return self


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Thing(name)
'''
TIMER = """
import timeit
from types import SimpleNamespace


class Timer:
    def __init__(self, stmt, globals, num_threads):
        self.timer = timeit.Timer(stmt, globals=globals)

    def timeit(self, number):
        return SimpleNamespace(mean=self.timer.timeit(number) / number)
"""
"""In place of torch.utils.benchmark."""
CORES = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the stand-in."""
    folder = tmp_path_factory.mktemp("torch")
    (folder / "torch/utils").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text(STAND_IN)
    (folder / "torch/utils/benchmark.py").write_text(TIMER)
    return str(folder)


@pytest.fixture
def busy() -> Iterator[None]:
    """Other work: as many programs as there are cores, which compute and sleep in turn."""
    code = (
        "import os, random, time\nparent = os.getppid()\n"
        "while os.getppid() == parent:\n"
        " end = time.time() + random.uniform(0, 2)\n"
        " while time.time() < end: sum(range(10000))\n"
        " time.sleep(random.uniform(0, 2))\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(CORES)]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.fixture
def own_core() -> Iterator[None]:
    """All processes run on one core, so that other tests do not move them: a quiet machine."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    yield
    os.sched_setaffinity(0, cores)


def compared(
    folder: str, threads: int, *, rounds: int = ROUNDS, of_a: int = 0, **env: str
) -> MeasuredSetting:
    """Compare two workloads in so many rounds; A has other variables, or `of_a` threads."""
    runs = []
    for own, number in ((env, of_a or threads), ({}, threads)):
        build = ComparedBuild(
            label="", python=Path(sys.executable), env={"PYTHONPATH": folder, **own}
        )
        argv = (ProcessReport, workloads.__file__, "cpu", "softmax", "FFT")
        runs.append(partial(build.answer, *argv, threads=number))
    asked = itertools.count()  # the clock: before the rounds, and after each from the eighth on
    return measure(runs, "test", threads, rounds - ROUNDS + 1, lambda: float(next(asked)))


def verdicts(found: MeasuredSetting) -> list[Verdict]:
    return [*(estimate.verdict for estimate in found.workloads.values()), found.mean.verdict]


@pytest.mark.slow
@pytest.mark.usefixtures("busy")
def test_equal_builds_are_never_called_slower_on_a_busy_machine(folder: str) -> None:
    found = [it for number in range(20) for it in verdicts(compared(folder, 1 + number % 2))]
    assert Verdict.SLOWER not in found
    decided = sum(verdict in {Verdict.EQUAL, Verdict.NOISY} for verdict in found)
    assert decided >= 0.95 * len(found)


@pytest.mark.slow
def test_half_of_the_threads_is_found(folder: str) -> None:
    half = compared(folder, 2, of_a=1)
    assert half.verdict is Verdict.SLOWER
    assert "A ran with 1 thread where 2 were asked" in half.reasons


@pytest.mark.slow
@pytest.mark.usefixtures("own_core")
def test_ten_percent_are_found_in_nine_of_ten_comparisons(folder: str) -> None:
    found = [verdicts(compared(folder, 1, rounds=16, FACTOR="1.1")) for _ in range(10)]
    assert sum(Verdict.SLOWER in each for each in found) >= 9
    assert not any(Verdict.FASTER in each for each in found)


# --- wheels: real pip, and files in a folder in place of an index ---


@pytest.mark.slow
def test_a_wheel_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for version in ("2.10.0", "2.9.0+cpu"):
        info = f"torch-{version}.dist-info"
        with zipfile.ZipFile(tmp_path / f"torch-{version}-py3-none-any.whl", "w") as archive:
            for path, text in {
                "torch/__init__.py": f"print('{version}')",
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
                f"{info}/WHEEL": tag,
                f"{info}/RECORD": "",
            }.items():
                archive.writestr(path, text)
    # The address of the index is an argument of the command, which this pip ignores.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    python = ".".join(map(str, sys.version_info[:3]))
    for name, origin in (
        ("wheel:2.10.0", "PyPI, or the index of your own settings"),
        ("wheel:2.9.0+cpu", "https://download.pytorch.org/whl/cpu"),
    ):
        said: list[str] = []
        built = wheel(tmp_path, name, python, said.append)
        folder = built.python.parents[1]
        assert said == [f"{name}: installing into {folder}, from {origin}; up to 5 GB"]
        argv = [str(built.python), "-c", "import torch"]
        assert subprocess.check_output(argv, text=True).strip() == name[6:]
        assert wheel(tmp_path, name, python, said.append) == built
        assert len(said) == 1
    with pytest.raises(ToolError, match=r"wheel:2.8.0: cannot be installed: .*[Nn]o "):
        wheel(tmp_path, "wheel:2.8.0", python, said.append)
    assert not list((tmp_path / ".build-pytorch/wheels").glob("2.8.0-*/complete"))
