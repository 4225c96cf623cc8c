"""PyTorch's own tests, from the source of the derivation, against a built package."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from build_pytorch.base import paths, process
from build_pytorch.base.console import visible
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.versions import in_range
from build_pytorch.nix import store
from build_pytorch.results import evidence
from build_pytorch.smoke.judge import Judgement, Outcome
from build_pytorch.smoke.script import ending
from build_pytorch.smoke.smoke_case import Environment, SmokeCase, built_python, case_of

_DEFAULT: Final = {
    "test_torch": 1, "test_nn": 1, "test_linalg": 1, "test_ops": 50, "test_transformers": 5,
    "test_autograd": 1, "test_fx": 1, "test_jit": 5, "test_sort_and_select": 1,
    "test_reductions": 1,
}  # fmt: skip
"""The files that run by default: of each every n-th test."""
_ON_GPU: Final = {"test_cuda": 1, "test_matmul_cuda": 1}
_TOOLS: Final = ("pytest", "expecttest", "hypothesis")
"""What the tests import besides torch and numpy."""
SKIPS: Final = Path(__file__).with_name("upstream_skips.toml")
_EVERY_NTH: Final = """
def pytest_collection_modifyitems(items):
    items[:] = items[::{}]
"""
"""A plugin of pytest that runs in the tested Python."""
_TEST: Final = r"(?:[^\s:]*/)?(\w+\.py::\S+)"
_RESULT: Final = re.compile(rf"(?m)^{_TEST} ?(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)?")
"""A line of `pytest -v`; without an outcome: the test began."""
_REASON: Final = re.compile(rf"(?m)^(?:FAILED|ERROR) {_TEST} - (.*)")


class UpstreamFile(Struct, frozen=True, kw_only=True):
    """The results of one file. `problem`: why it did not run to its end."""

    file: str
    tests: Mapping[str, str]  #: the outcome of each test as pytest names it
    reasons: Mapping[str, str] = {}  #: why tests failed
    seconds: float = 0
    problem: str = ""

    @property
    def counts(self) -> Counter[str]:
        """The number of tests by outcome."""
        return Counter(outcome.lower() for outcome in self.tests.values())


def known_failures(torch: str) -> list[str]:
    """Return patterns of tests that fail on a correct build: upstream_skips.toml says why."""
    rows = tomllib.loads(SKIPS.read_text("utf-8"))["skip"]
    return [row["test"] for row in rows if in_range(torch, row["torch"])]


def judge_files(results: Sequence[UpstreamFile], known: Sequence[str]) -> Judgement:
    """Judge results; skipped: not every file ran to its end.

    A failure that is known is none; a known one that passes is a reason to remove it.
    """
    failed, unfinished, repaired = [], [], []
    for result in results:
        for test, word in result.tests.items():
            is_known = any(fnmatch.fnmatch(test, pattern) for pattern in known)
            if word in {"FAILED", "ERROR"} and not is_known:
                failed.append(f"{test}: {result.reasons.get(test, 'no reason')}")
            elif word == "PASSED" and is_known:
                repaired.append(f"{test} passes: remove it from upstream_skips.toml")
        if result.problem.startswith("crashed"):
            failed.append(f"{result.file}: {result.problem}")
        elif result.problem or not result.counts["passed"]:
            unfinished.append(f"{result.file}: {result.problem or 'no test passed'}")
    outcome: Outcome = "failed" if failed else "skipped" if unfinished else "passed"
    return Judgement(outcome=outcome, reasons=(*failed, *unfinished, *repaired))


def run_upstream(  # noqa: PLR0913 - the options of the command
    root: Path,
    package: Package,
    named: Path | None,
    *,
    seconds: float,
    names: Sequence[str],
    say: Callable[[str], object],
) -> SmokeCase:
    """Run files of PyTorch's tests in a Python, as many at once as there are cores.

    `names`, empty: the default set. `seconds` are the limit of each file. `say` gets a line for
    each file that ended. The result of a built package is recorded. Raises BuildPytorchError.
    """
    python, env, built = built_python(root, package, named)
    shares = dict.fromkeys(names, 1) or {**_DEFAULT, **(_ON_GPU if package.gpu else {})}
    source = f'(import {root}/release.nix {{ }})."{package.variant.attribute}".src'
    built_source = process.output_of(store.build_expression_argv(source)).strip()
    tests = Path(built_source, "test")
    if absent := [name for name in shares if not (tests / f"{name}.py").is_file()]:
        raise BuildPytorchError(f"--upstream {','.join(absent)}: no such file in {tests}")
    env = {**env, "PYTHONPATH": f"{_tools(root, python)}:{env.get('PYTHONPATH') or ''}"}

    def run(file: str) -> UpstreamFile:
        result = run_file(python, env, tests / f"{file}.py", shares[file], seconds)
        counts = ", ".join(f"{number} {word}" for word, number in result.counts.items())
        problem = f"; {result.problem}" if result.problem else ""
        say(f"{file}: {counts}, {result.seconds:.0f} s{problem}")
        return result

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = tuple(pool.map(run, shares))
    judgement = judge_files(results, known_failures(package.release.torch.version))
    counts = {it.file: {**it.counts, "seconds": round(it.seconds)} for it in results}
    case = structs.replace(case_of(package, judgement, python, built), counts=counts)
    return evidence.record_evidence(root, package, built, test="upstream", result=case)


def run_file(
    python: Path, env: Environment, file: Path, share: int, seconds: float
) -> UpstreamFile:
    """Run every `share`-th test of a file by pytest; what ran before its end counts."""
    argv = [str(python), "-m", "pytest", "-v", "--tb=no", "--noconftest", "-c", "/dev/null"]
    # Its handlers of log records and of warnings take what PyTorch's tests look for.
    for plugin in ("no:logging", "no:warnings", "no:cacheprovider", "every_nth"):
        argv += ["-p", plugin]
    argv += ["--rootdir", str(file.parent), str(file)]
    began = time.monotonic()
    # The source is read-only, and some tests write into the folder that they run in.
    with tempfile.TemporaryDirectory(prefix="upstream-", ignore_cleanup_errors=True) as folder:
        Path(folder, "every_nth.py").write_text(_EVERY_NTH.format(share), "utf-8")
        own = {"PYTHONPATH": f"{folder}:{env.get('PYTHONPATH') or ''}", "COLUMNS": "400"}
        own |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        ended = process.run(argv, cwd=Path(folder), env={**env, **own}, seconds=seconds)
    tests = _RESULT.findall(ended.stdout)
    last = tests[-1][0] if tests else "its import"
    problem = ""
    if ended.expired:
        problem = f"stopped at the limit of {seconds:g} s in {last}"
    elif ended.code < 0:
        problem = f"crashed in {last}: {ending(ended.code)}"
    elif ended.code > 1:  # 1: a test failed
        lines = f"{ended.stdout}\n{ended.stderr}".splitlines()
        errors = [line for line in lines if "Error" in line] or ["no error output"]
        problem = f"pytest {ending(ended.code)}: {visible(errors[-1])[:300]}"
    return UpstreamFile(
        file=file.stem,
        tests={test: word for test, word in tests if word},
        reasons={test: visible(why) for test, why in _REASON.findall(ended.stdout)},
        seconds=time.monotonic() - began,
        problem=problem,
    )


def _tools(root: Path, python: Path) -> Path:
    """Return a folder with what the tests import; pip installs it for this Python once."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = process.output_of([str(python), "-c", code]).strip()
    folder = root / paths.STATE / "upstream" / version
    if not (folder / "pytest").is_dir():
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        argv += ["--only-binary", ":all:", "--python-version", version, *_TOOLS]
        if process.run(argv).code:
            raise ToolError(f"pip cannot install {', '.join(_TOOLS)} for Python {version}")
    return folder
