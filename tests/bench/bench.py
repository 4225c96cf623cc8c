"""Whole-process times of our commands as ratios against bare baselines, taken in the same run.

Every command is a fresh process; the two sides of a ratio take turns, so that a machine that
becomes slower does so for both. `python tests/bench/bench.py --runs 9`, or `nox -s bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(PROJECT / "tests")]

from one_release import first_release  # noqa: E402 - beside the tests

BARE = """
import sys; sys.path.insert(0, ".")
import invoke, jinja2, msgspec, tomllib
from pathlib import Path
from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
for path, text in recipes.render(matrix_reader.load()).items():
    target = Path("bare") / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
"""

EMPTY_SESSION = """
import nox
@nox.session(venv_backend="none")
def empty(session): pass
"""

GREP_VERIFICATION = r"""
ls .flox/pkgs/pytorch-python313-cuda13_0-*.nix | wc -l
ls .flox/pkgs/pytorch-python313-cpu-*.nix | wc -l
ls .flox/pkgs/pytorch-python313-cuda13_0-*-magma.nix 2>/dev/null
ls .flox/pkgs/pytorch-python313-cuda13_0-*-nightly.nix 2>/dev/null
ls .flox/pkgs/pytorch-python313-cuda13_0-*-avx.nix 2>/dev/null
for f in .flox/pkgs/pytorch-python313-cuda13_0-*.nix; do
  count=$(grep -c 'cudaPackages_13\|cuda-13.0-clockrate-fix.patch\|version = "2.10.0"' "$f")
  if [ "$count" -ne 3 ]; then echo "BROKEN: $f"; fi
done
for f in .flox/pkgs/pytorch-python313-cpu-*.nix; do
  count=$(grep -c 'version = "2.10.0"' "$f")
  cuda=$(grep -c 'cudaPackages_13' "$f")
  if [ "$count" -ne 1 ] || [ "$cuda" -ne 0 ]; then echo "BROKEN: $f"; fi
done
grep -l 'fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3' .flox/pkgs/pytorch-python313-*.nix
grep 'gpuArchSM = "9.0"' .flox/pkgs/pytorch-python313-cuda13_0-sm90-*.nix
grep 'gpuArchSM = "8.6"' .flox/pkgs/pytorch-python313-cuda13_0-sm86-*.nix
grep 'gpuArchSM = "12.1"' .flox/pkgs/pytorch-python313-cuda13_0-sm121-*.nix
"""

BARE_READER = """
import sys
with open(sys.argv[1], "rb") as log:
    print(sum("error: " in line.decode(errors="replace") for line in log))
"""

FIRST = ("--only", "text", "--only", "generated")
"""The categories that need nothing but the files."""

THREE = ("--only", "text", "--only", "syntax", "--only", "evaluation")
"""Text, syntax and evaluation by Nix."""

ALL_TO_WRITE = "invoke all (all 44 to write)"

Command = tuple[list[str], Path]


class Row(NamedTuple):
    """One comparison: median seconds of both sides and the median of their ratios."""

    name: str
    ours: float
    baseline: float
    ratio: float
    aim: str


def main() -> None:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="counted runs of each command")
    parser.add_argument("--variants", type=int, default=1000, help="size of the synthetic matrix")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), options.runs, options.variants)
    if options.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return
    title = f"whole processes, seconds, median of {options.runs}"
    width = max(len(title), *(len(row.name) for row in rows))
    print(f"{title:{width}}    ours  baseline  ratio  aim")
    for row in rows:
        times = f"{row.ours:6.3f}  {row.baseline:8.3f}  {row.ratio:5.2f}"
        print(f"{row.name:{width}}  {times}  {row.aim}")


def measure(folder: Path, runs: int, variants: int) -> list[Row]:
    """Take every comparison below a temporary folder."""
    one = first_release((PROJECT / "matrix.toml").read_text())
    small, large, lines = (copy_project(folder / name) for name in ("small", "large", "lines"))
    (small / "matrix.toml").write_text(one)
    releases = -(-variants // 44)
    (large / "matrix.toml").write_text(synthetic(one, releases))
    shutil.copy(PROJECT / "examples/all-lines/matrix.toml", lines / "matrix.toml")
    for root in (small, large, lines):
        shutil.rmtree(root / "releases")
    for root in (large, lines):
        shutil.rmtree(root / ".flox/pkgs")
    empty = folder / "empty"
    empty.mkdir()
    (empty / "noxfile.py").write_text(EMPTY_SESSION)
    for root in (small, large, lines):
        (root / "bare.py").write_text(BARE)
        run(invoke(root, "all"))
    made, of_lines = (sum(1 for _ in r.rglob(".flox/pkgs/*.nix")) for r in (large, lines))
    session: Command = (python("nox", "-s", "empty"), empty)
    # The same in this project's noxfile, whose sessions have to be known before one can run.
    own_noxfile = small / "noxfile.py"
    own_noxfile.write_text(f"{own_noxfile.read_text()}\n\n{EMPTY_SESSION}")
    own_session: Command = (python("nox", "-s", "empty"), small)
    bare = "a bare script that renders and writes"
    few, verify = max(3, runs // 3), "nox -s verify"
    linear = f"below {1.5 * made / 44:.0f}: 1.5 x linear"
    write, grep = invoke(small, "all"), (["bash", "-c", GREP_VERIFICATION], small)
    three, own = "text, syntax and evaluation", "an empty session of this noxfile"
    log = long_log(small)
    loop: Command = ([sys.executable, "-c", BARE_READER, log], small)
    check_three = nox(small, "verify", *THREE)
    comparisons: list[tuple[str, Command, Command, int, str]] = [
        (f"invoke all (nothing to do) / {bare} 44", write, script(small), runs, "1.5"),
        (f"{ALL_TO_WRITE} / {bare} 44", write, script(small), runs, "1.5"),
        (f"{verify}, text alone / empty", nox(small, "verify", *FIRST), session, runs, "1.5"),
        (f"{verify}, {three} / an empty session", check_three, session, runs, "2"),
        (f"{verify}, {three} / {own}", check_three, own_session, runs, "2"),
        (f"{verify}, everything / an empty session", nox(small, "verify"), session, runs, ""),
        (f"{verify}, text / Bash with grep", nox(small, "verify", *FIRST), grep, runs, ""),
        (f"invoke all, {made} / {bare} {made}", invoke(large, "all"), script(large), few, "1.5"),
        (f"invoke all, {of_lines} / 44 variants", invoke(lines, "all"), write, few, "at most 3 s"),
        (
            f"invoke verify, {three}, those {of_lines} / 44 variants",
            invoke(lines, "verify", *THREE),
            invoke(small, "verify", *THREE),
            few,
            "at most 5 s",
        ),
        (f"{verify}, {made} / 44", nox(large, "verify"), nox(small, "verify"), few, linear),
        ("invoke diagnose, 10 MB / a bare loop", invoke(small, "diagnose", log), loop, few, "40"),
    ]
    return [compare(*comparison) for comparison in comparisons]


def compare(name: str, ours: Command, baseline: Command, runs: int, aim: str) -> Row:
    """Time two commands in turns."""
    pairs = []
    for number in range(runs + 1):
        if name.startswith(ALL_TO_WRITE):
            forget(ours[1])
        pairs.append((run(ours), run(baseline)))
        if not number:  # it warms the disk cache and is not counted
            pairs.clear()
    return Row(
        name,
        statistics.median(first for first, _ in pairs),
        statistics.median(second for _, second in pairs),
        statistics.median(first / second for first, second in pairs),
        aim,
    )


def run(command: Command) -> float:
    """Run a command to its end, which must be good, and return the seconds it took."""
    argv, root = command
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    done = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode and argv[0] != "bash":
        sys.exit(f"{' '.join(argv)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return seconds


def python(*argv: str) -> list[str]:
    """A command run by this Python."""
    return [sys.executable, "-m", *argv]


def invoke(root: Path, *argv: str) -> Command:
    """An invoke command in a checkout."""
    return python("invoke", *argv), root


def nox(root: Path, session: str, *arguments: str) -> Command:
    """A nox session in a checkout."""
    return python("nox", "-s", session, "--", *arguments), root


def script(root: Path) -> Command:
    """The bare script in a checkout."""
    return [sys.executable, "bare.py"], root


def long_log(root: Path) -> str:
    """The name of a log of 10 MB: that of a real build, many times over."""
    log = root / "long.log"
    if not log.exists():
        text = (root / "tests/logs/03-cpu-avx2-resumed.log").read_bytes()
        log.write_bytes(text * (10_000_000 // len(text)))
    return str(log)


def forget(root: Path) -> None:
    """Remove what `invoke all` writes, and what it remembers."""
    shutil.rmtree(root / ".flox/pkgs")
    shutil.rmtree(root / ".build-pytorch", ignore_errors=True)


def copy_project(root: Path) -> Path:
    """A copy of this checkout without what Git ignores."""
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".nox", ".build-pytorch", "__pycache__", ".*_cache", ".hypothesis"
    )
    shutil.copytree(PROJECT, root, ignore=ignored)
    return root


def synthetic(text: str, releases: int) -> str:
    """A matrix with the release of `text` many times over, each in a folder of its own."""
    start, end = text.index("[release."), text.index("[gpu.")
    release = text[start:end]
    copies = [
        release.replace("release.cuda13_0", f"release.r{number}")
        .replace('folder = "', f'catalog = "r{number}"\nfolder = "r{number}/')
        .replace('notes = "docs/explanation/', f'notes = "docs/explanation/r{number}-')
        .replace('hash = "sha256-RK', f'hash = "sha256-{number:02}')  # each builds its own source
        for number in range(releases)
    ]
    return text[:start] + "\n".join(copies) + text[end:]


if __name__ == "__main__":
    main()
