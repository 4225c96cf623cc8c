"""How good `invoke compare` is: real processes on a busy machine, with a stand-in for torch."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_pytorch.base import installed_torch
from build_pytorch.base.errors import ToolError
from build_pytorch.compare.comparison import (
    ComparedBuild,
    ComparedTorch,
    answer_of,
    run_process,
    wheel,
)
from build_pytorch.compare.measurement import MeasuredSetting, ProcessReport, Verdict, measure

pytestmark = pytest.mark.slow

STAND_IN = '''
"""Hashes bytes where torch computes, with as many threads as OMP_NUM_THREADS says."""
import hashlib, os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace as Facts

__version__ = "2.10.0"
version = Facts(cuda=None, hip=None)
backends = Facts(
    cpu=Facts(get_cpu_capability=lambda: "none"), cudnn=Facts(is_available=lambda: False)
)
cuda = Facts(has_magma=False)
_C = Facts()
__config__ = Facts(show=lambda: "", parallel_info=lambda: "")
THREADS = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count())
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in."""
    folder = tmp_path_factory.mktemp("torch")
    (folder / "torch/utils").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text(STAND_IN)
    (folder / "torch/utils/benchmark.py").write_text(TIMER)
    return folder


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


def build(folder: Path, **env: str) -> ComparedBuild:
    return ComparedBuild(
        label="A" if env else "B",
        python=Path(sys.executable),
        env={"PYTHONPATH": str(folder), **env},
    )


def compared(a: ComparedBuild, b: ComparedBuild, threads: int, rounds: int) -> MeasuredSetting:
    """Compare two workloads in so many rounds at most."""
    started = 0

    def run(side: int) -> ProcessReport:
        nonlocal started
        started += 1
        env = dict((a, b)[side].env)
        asked = int(env.pop("HALVED", None) or threads)  # as a wrapper of Python would do
        changed = ComparedBuild(label="AB"[side], python=Path(sys.executable), env=env)
        return run_process([changed], "cpu", asked, 0, "softmax", "FFT")

    return measure(run, "test", threads, 2 * rounds, lambda: float(started))


def verdicts(found: MeasuredSetting) -> list[Verdict]:
    return [*(estimate.verdict for estimate in found.workloads.values()), found.mean.verdict]


@pytest.mark.usefixtures("busy")
def test_equal_builds_are_never_called_slower_on_a_busy_machine(folder: Path) -> None:
    found = [
        verdict
        for number in range(20)
        for verdict in verdicts(compared(build(folder), build(folder), 1 + number % 2, rounds=8))
    ]
    assert Verdict.SLOWER not in found
    decided = sum(verdict in {Verdict.EQUAL, Verdict.NOISY} for verdict in found)
    assert decided >= 0.95 * len(found)


def test_half_of_the_threads_is_found(folder: Path) -> None:
    half = compared(build(folder, HALVED="1"), build(folder), 2, rounds=8)
    assert half.verdict is Verdict.SLOWER
    assert "A ran with 1 thread where 2 were asked" in half.reasons


@pytest.fixture
def own_core() -> Iterator[None]:
    """All processes run on one core, so that other tests do not move them: a quiet machine."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("own_core")
def test_ten_percent_are_found_in_nine_of_ten_comparisons(folder: Path) -> None:
    slow = build(folder, FACTOR="1.1")
    found = [verdicts(compared(slow, build(folder), 1, rounds=16)) for _ in range(10)]
    assert sum(Verdict.SLOWER in each for each in found) >= 9
    assert not any(Verdict.FASTER in each for each in found)


# --- wheels: real pip, and files in a folder in place of an index ---


@pytest.fixture
def folder_of_wheels(tmp_path: Path) -> Path:
    """A folder with two wheels of the stand-in for torch."""
    folder = tmp_path / "index"
    folder.mkdir()
    tag = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for version in ("2.10.0", "2.9.0+cpu"):
        info = f"torch-{version}.dist-info"
        with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as archive:
            for path, text in {
                "torch/__init__.py": STAND_IN.replace('"2.10.0"', f'"{version}"'),
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
                f"{info}/WHEEL": tag,
                f"{info}/RECORD": "",
            }.items():
                archive.writestr(path, text)
    return folder


def test_a_wheel_is_installed_once(
    tmp_path: Path, folder_of_wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The address of the index is an argument of the command, which this pip ignores.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder_of_wheels))
    version = ".".join(map(str, sys.version_info[:2]))
    for name in ("wheel:2.10.0", "wheel:2.9.0+cpu"):
        said: list[str] = []
        built = wheel(tmp_path, name, version, said.append)
        assert said[0].startswith(f"{name}: installing into {tmp_path}")
        asked = [installed_torch.__file__]
        assert answer_of(built, asked, {}, ComparedTorch).version == name[6:]
        again: list[str] = []
        assert wheel(tmp_path, name, version, again.append) == built
        assert not again
    with pytest.raises(ToolError, match=r"wheel:2.8.0: cannot be installed: .*[Nn]o "):
        wheel(tmp_path, "wheel:2.8.0", version, said.append)
    assert not list((tmp_path / ".build-pytorch/wheels").glob("2.8.0-*/complete"))
