"""PyTorch's own tests, from the source of the derivation, against a built package."""

from __future__ import annotations

import fnmatch
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct, structs

from build_pytorch.base import foreign_json, paths, process
from build_pytorch.base.console import visible
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.versions import in_range
from build_pytorch.nix import store
from build_pytorch.results import evidence
from build_pytorch.smoke import upstream_plugin
from build_pytorch.smoke.judge import Judgement, Outcome
from build_pytorch.smoke.script import ending
from build_pytorch.smoke.smoke_case import SmokeCase, SmokeSettings, case_of, tested_python

_SHARES: Final = {
    "test_torch": 1,
    "test_nn": 1,
    "test_linalg": 1,
    "test_ops": 50,
    "test_transformers": 5,
    "test_autograd": 1,
    "test_fx": 1,
    "test_jit": 5,
    "test_sort_and_select": 1,
    "test_reductions": 1,
}
"""The files that run by default; n: every n-th test."""
_ON_GPU: Final = {"test_cuda": 1, "test_matmul_cuda": 1}
_TOOLS: Final = ("pytest", "expecttest", "hypothesis")
"""What the tests import besides torch and numpy."""
_LARGEST: Final = 1 << 28
_Text = Annotated[str, Meta(max_length=2000)]


class UpstreamSkip(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test that fails on a correct build; upstream_skips.toml explains the fields."""

    torch: ft.Range
    test: str
    reason: ft.Text
    source: ft.Text
    checked: ft.Date


class UpstreamTest(Struct, frozen=True, kw_only=True):
    """A line of upstream_plugin.py; without an outcome: the test began."""

    test: _Text
    outcome: Literal["passed", "failed", "skipped", ""] = ""
    why: _Text = ""


class UpstreamFile(Struct, frozen=True, kw_only=True):
    """The results of one file. `problem`: why it did not run to its end."""

    file: str
    tests: tuple[UpstreamTest, ...]
    seconds: float = 0
    problem: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """The number of tests by outcome."""
        outcomes = [test.outcome for test in self.tests]
        return {word: outcomes.count(word) for word in ("passed", "failed", "skipped")}


@functools.cache
def known_failures() -> tuple[UpstreamSkip, ...]:
    """Return the content of upstream_skips.toml."""
    text = Path(__file__).with_name("upstream_skips.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=dict[Literal["skip"], tuple[UpstreamSkip, ...]])["skip"]


def judge_files(
    torch: str, results: Sequence[UpstreamFile], known: Sequence[UpstreamSkip]
) -> Judgement:
    """Judge the results of a version of PyTorch; skipped: not every file ran to its end.

    A failure that is known is none; a known one that passes is a note.
    """
    known = [skip for skip in known if in_range(torch, skip.torch)]
    failed, unfinished, notes = [], [], []
    for result in results:
        for test in result.tests:
            skip = next((skip for skip in known if fnmatch.fnmatch(test.test, skip.test)), None)
            if test.outcome == "failed" and skip is None:
                failed.append(f"{test.test}: {test.why}")
            elif test.outcome == "passed" and skip:
                fix = f"remove it from upstream_skips.toml ({skip.reason})"
                notes.append(f"{test.test} passes: {fix}")
        if result.problem.startswith("crashed"):
            failed.append(f"{result.file}: {result.problem}")
        elif result.problem or not result.counts["passed"]:
            unfinished.append(f"{result.file}: {result.problem or 'no test passed'}")
    outcome: Outcome = "failed" if failed else "skipped" if unfinished else "passed"
    return Judgement(outcome=outcome, reasons=(*failed, *unfinished), notes=tuple(notes))


def run_upstream(
    package: Package, settings: SmokeSettings, names: Sequence[str], say: Callable[[str], object]
) -> SmokeCase:
    """Run files of PyTorch's tests in a Python, as many at once as there are cores.

    `names`, empty: the default set. The time limit of `settings` is that of each file. `say` gets a
    line for each file that ended. The result of a built package is recorded. Raises
    BuildPytorchError.
    """
    root = settings.root
    python, env, built = tested_python(package, settings)
    default = {**_SHARES, **(_ON_GPU if package.variant.gpu else {})}
    shares = dict.fromkeys(names, 1) or default
    source = f'(import {root}/release.nix {{ }})."{package.variant.attribute}".src'
    built_source = process.output_of(store.build_expression_argv(source)).strip()
    tests = Path(built_source, "test")
    if absent := [name for name in shares if not (tests / f"{name}.py").is_file()]:
        raise BuildPytorchError(f"--upstream {','.join(absent)}: no such file in {tests}")
    search = [_tools(root, python), Path(upstream_plugin.__file__).parent, env.get("PYTHONPATH")]
    env = {**env, "PYTHONPATH": ":".join(str(folder) for folder in search if folder)}

    def run(file: str) -> UpstreamFile:
        result = run_file(python, env, tests / f"{file}.py", shares[file], settings.seconds)
        counts = ", ".join(f"{number} {word}" for word, number in result.counts.items())
        problem = f"; {result.problem}" if result.problem else ""
        say(f"{file}: {counts}, {result.seconds:.0f} s{problem}")
        return result

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = tuple(pool.map(run, shares))
    version = package.variant.release.torch.version
    case = structs.replace(
        case_of(package, judge_files(version, results, known_failures())),
        python=str(python),
        output="" if settings.python or not built else str(built.output),
        counts={r.file: {**r.counts, "seconds": round(r.seconds)} for r in results},
    )
    recorded = None if settings.python else built
    return evidence.record_evidence(root, package, recorded, test="upstream", result=case)


def run_file(
    python: Path, env: Mapping[str, str | None], file: Path, share: int, seconds: float
) -> UpstreamFile:
    """Run every `share`-th test of a file by pytest; what ran before its end counts."""
    argv = [str(python), "-m", "pytest", "-p", "upstream_plugin", "-p", "no:cacheprovider", "-q"]
    argv += ["--noconftest", "-c", "/dev/null", "--rootdir", str(file.parent), str(file)]
    own = {"UPSTREAM_SHARE": str(share), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.monotonic()
    # The source is read-only, and some tests write into the folder that they run in.
    with tempfile.TemporaryDirectory(prefix="upstream-", ignore_cleanup_errors=True) as folder:
        results = Path(folder, "results.jsonl")
        own["UPSTREAM_RESULTS"] = str(results)
        ended = process.run(argv, cwd=Path(folder), env={**env, **own}, seconds=seconds)
        lines = results.read_bytes()[:_LARGEST].splitlines() if results.exists() else []
    tests = []
    for line in lines:
        try:
            tests.append(msgspec.convert(foreign_json.decode(line.decode()), UpstreamTest))
        except ValueError:
            break  # it was killed while it wrote
    last = tests[-1].test if tests else "its import"
    problem = ""
    if ended.expired:
        problem = f"stopped at the limit of {seconds:g} s in {last}"
    elif ended.code < 0:
        problem = f"crashed in {last}: {ending(ended.code)}"
    elif ended.code > 1:  # 1: a test failed
        lines_said = (ended.stdout + ended.stderr).strip().splitlines()
        error = [line for line in lines_said if "Error" in line] or lines_said or [""]
        problem = f"pytest {ending(ended.code)}: {visible(error[-1])[:300]}"
    finished = tuple(test for test in tests if test.outcome)
    seconds = time.monotonic() - began
    return UpstreamFile(file=file.stem, tests=finished, seconds=seconds, problem=problem)


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
