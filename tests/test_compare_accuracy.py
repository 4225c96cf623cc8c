"""How good `invoke compare` is: real processes on a busy machine, with a stand-in for torch."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from build_pytorch.base.errors import ToolError
from build_pytorch.compare import workloads
from build_pytorch.compare.comparison import ComparedBuild, wheel
from build_pytorch.compare.measurement import (
    ROUNDS,
    MeasuredSetting,
    ProcessReport,
    Verdict,
    measure,
)

pytestmark = pytest.mark.slow

STAND_IN = '''
"""Hashes bytes where torch computes, with as many threads as OMP_NUM_THREADS says."""
import hashlib, os
from concurrent.futures import ThreadPoolExecutor

THREADS = int(os.environ["OMP_NUM_THREADS"])
POOL = ThreadPoolExecutor(THREADS)
PART = bytes(int(4e5 * float(os.environ.get("FACTOR", 1)) / THREADS))


def get_num_threads():
    return THREADS


class Thing:
    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        return Thing(name)

    def __call__(self, *_args, **_options):
        if self.name in {"softmax", "fft"}:
            list(POOL.map(lambda part: hashlib.sha256(part).digest(), [PART] * THREADS))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass


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


@pytest.mark.usefixtures("busy")
def test_equal_builds_are_never_called_slower_on_a_busy_machine(folder: str) -> None:
    found = [it for number in range(20) for it in verdicts(compared(folder, 1 + number % 2))]
    assert Verdict.SLOWER not in found
    decided = sum(verdict in {Verdict.EQUAL, Verdict.NOISY} for verdict in found)
    assert decided >= 0.95 * len(found)


def test_half_of_the_threads_is_found(folder: str) -> None:
    half = compared(folder, 2, of_a=1)
    assert half.verdict is Verdict.SLOWER
    assert "A ran with 1 thread where 2 were asked" in half.reasons


@pytest.mark.usefixtures("own_core")
def test_ten_percent_are_found_in_nine_of_ten_comparisons(folder: str) -> None:
    found = [verdicts(compared(folder, 1, rounds=16, FACTOR="1.1")) for _ in range(10)]
    assert sum(Verdict.SLOWER in each for each in found) >= 9
    assert not any(Verdict.FASTER in each for each in found)


# --- wheels: real pip, and files in a folder in place of an index ---


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
