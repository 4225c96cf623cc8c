"""`invoke verify --against REF`: which packages a change rebuilds, and the cause that it names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ONE, Project, needs_nix, write_recipes
from mutations import swap
from one_release import written_out

from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.verify import rebuilds
from build_pytorch.verify.rebuilds import PackageChange, Rebuilds

Edit = Callable[[str], str]
TEXT = written_out(ONE)

CHOSEN = ("sm90-avx2", "sm90-avx512", "sm120-avx512", "cpu-avx2", "sm110-armv9")
"""Variants whose packages are compared; one of each kind."""

RULE = """
[[rule]]
id = "no-nccl"
when.gpu = ["sm90"]
when.cpu = ["avx512"]
effect.environment = { USE_NCCL = "0" }
reason = "a test"
source = "https://example.org/a"
checked = "2026-11-21"
"""


OTHER = RULE.replace("no-nccl", "no-cudnn").replace("USE_NCCL", "USE_CUDNN")
TAG = 'rev = "v2.10.0"\nhash = "sha256-RK'
TORCH = 'version = "2.10.0"\nowner = "pytorch"\nrepo = "pytorch"'
PIN = "6a030d535719c5190187c4cec156f335e95e3211"
LAYOUT = "preConfigure: only order, layout, quotes or comments"
ALL = {*CHOSEN}
GPU = ALL - {"cpu-avx2"}


def flag(text: str) -> str:
    text = swap('["-mavx2", "-mfma", "-mf16c"]', '["-mavx2", "-mfma", "-mbmi2"]')(text)
    return swap('["avx2", "fma", "f16c"]', '["avx2", "fma", "bmi2"]')(text)


def python(text: str) -> str:
    text = text.replace("python313", "python312")
    return swap('python = { version = "3.13" }', 'python = { version = "3.12" }')(text)


def comment(text: str) -> str:
    return text.replace("    # CPU instruction set", "    # CPU instructions")


def function(text: str) -> str:
    return text.replace('echo "Jobs:', 'echo "jobs:')


def cmake_flag(text: str) -> str:
    is_its_recipe = 'pname = "pytorch210-python313-cuda13_0-sm90-avx2"' in text
    flag = '"-DCUDA_VERSION=13.0"'
    return text.replace(flag, f'{flag} "-DX=1"') if is_its_recipe else text


def version(text: str) -> str:
    text = swap(TAG, TAG.replace("0.0", "0.1"))(text)
    return swap(TORCH, TORCH.replace("0.0", "0.1"))(text)


CASES: dict[str, tuple[Edit, Edit, set[str], str]] = {
    # the edits of matrix.toml and of recipes, which variants are rebuilt, and the root cause
    "a flag of an ISA": (flag, str, {"sm90-avx2", "cpu-avx2"}, "preConfigure: -mf16c -> -mbmi2"),
    "a rule": (lambda text: text + RULE, str, {"sm90-avx512"}, "rule no-nccl begins to"),
    "a pin": (lambda t: t.replace(PIN, f"7{PIN[1:]}"), str, ALL, "nixpkgs 6a030d53 -> 7a030d53"),
    "jobs": (swap("max_jobs = 32", "max_jobs = 16"), str, ALL, "ninjaFlags: -j32 -> -j16"),
    "the hash of the source": (swap("uS1jC1xQ=", "uS1jC1xA="), str, ALL, "src.hash: sha256-RKiZ"),
    "the hash of a patch": (swap("a256-i9In", "a256-j9In"), str, GPU, "magma.patches: cuda-13.0"),
    "a version of PyTorch": (version, str, ALL, "version: 2.10.0 -> 2.10.1"),
    "a name": (swap('pname = "pytorch210"', 'pname = "pytorch2100"'), str, ALL, "another name"),
    "a Python": (python, str, ALL, "input.python3: 3.13.0 -> 3.12.0"),
    "a product": (swap('"H100", "H200"', '"H100", "H200", "H300"'), str, set(), ""),
    "a driver": (swap('"580.65.06"\nsource', '"590.44.01"\nsource'), str, set(), ""),
    "a comment of the script": (str, comment, ALL, LAYOUT),
    "the function of companions": (str, function, ALL, "preConfigure: Jobs: -> jobs:"),
    "a flag in one recipe": (str, cmake_flag, {"sm90-avx2"}, "cmakeFlags: -DX=1 added"),
    "a comment of the recipe": (str, lambda t: t.replace("# Two stages", "# Two"), set(), ""),
    "a rule that ends": (str, str, {"sm90-avx512"}, "rule no-nccl ends to apply"),
    "another order of rules": (lambda t: t + OTHER + RULE, str, {"sm90-avx512"}, LAYOUT),
}
BEFORE = {"a rule that ends": RULE, "another order of rules": RULE + OTHER}
"""What matrix.toml has at its end before the change."""

Tree = tuple[Matrix, Path]


def written(root: Path, text: str, edit: Edit = str) -> Tree:
    """Write the recipes of a matrix, changed by an edit."""
    matrix = matrix_reader.parse(text)
    write_recipes(root, matrix, edit)
    return matrix, root


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The recipes before a change."""
    return written(tmp_path_factory.mktemp("before"), TEXT)


def compared(before: Tree, after: Tree) -> Rebuilds:
    """Compare the packages of CHOSEN before and after a change."""
    chosen = [p for p in after[0].packages if p.variant.short_id in CHOSEN]
    return rebuilds.compare("main", before, after, chosen)


def of(found: Rebuilds, *states: str) -> list[PackageChange]:
    return [change for change in found.packages if change.state in states]


def require(found: Rebuilds, expected: set[str], cause: str) -> None:
    """These variants are rebuilt, for this cause first, and their companions with them."""
    states = {change.package: change for change in found.packages}
    rebuilt = {name for name in CHOSEN if states[name].state == "rebuilt"}
    assert rebuilt == expected, states
    assert {states[name].state for name in {*CHOSEN} - rebuilt} <= {"unchanged"}
    assert found.is_none == (not expected)
    assert len({states[name].causes for name in rebuilt}) <= 3, "packages have causes in common"
    for variant in rebuilt:
        assert cause in states[variant].causes[0], states[variant]
        for companion in ("torchvision", "torchaudio"):
            assert states[f"{variant}+{companion}"].state in {"follows", "rebuilt"}


@needs_nix
@pytest.mark.parametrize("name", CASES)
def test_the_root_cause_is_named_for_what_is_rebuilt_and_for_nothing_else(
    before: Tree, tmp_path: Path, name: str
) -> None:
    of_matrix, of_recipes, expected, cause = CASES[name]
    if name in BEFORE:
        before = written(tmp_path / "before", TEXT + BEFORE[name])
    require(compared(before, written(tmp_path, of_matrix(TEXT), of_recipes)), expected, cause)


@needs_nix
def test_a_companion_is_rebuilt_alone(before: Tree, tmp_path: Path) -> None:
    text = TEXT.replace('"0.25.0"', '"0.25.1"').replace('"v0.25.0"', '"v0.25.1"')
    found = compared(before, written(tmp_path, swap("sha256-oktJHcT6", "sha256-pktJHcT6")(text)))
    assert {c.package.partition("+")[2] for c in of(found, "rebuilt", "follows")} == {"torchvision"}
    assert not of(found, "follows")


@needs_nix
def test_packages_that_come_and_go_are_named(before: Tree, tmp_path: Path) -> None:
    after = written(tmp_path, TEXT.replace('"sm90", ', "", 1))
    gone = {p.id for p in before[0].packages} - {p.id for p in after[0].packages}
    found = rebuilds.compare("x", before, after, after[0].packages)
    assert {change.package for change in of(found, "removed")} == gone != set()
    back = rebuilds.compare("x", after, before, before[0].packages)
    assert {change.package for change in of(back, "new")} == gone


@needs_nix
def test_the_command_compares_with_a_commit(project: Project) -> None:
    project.commit()
    none = project.invoke("verify", "--against", "HEAD", "--strict")
    assert (none.returncode, none.stdout.split("\n")[0]) == (0, "Nothing is rebuilt since HEAD.")
    project.edit("matrix.toml", "max_jobs = 32", "max_jobs = 16")
    project.succeeds("all")
    done = project.invoke("verify", "--against", "HEAD", "--strict")
    assert done.returncode == 1
    assert "because ninjaFlags: -j32 -> -j16" in done.stdout
    document = json.loads(project.invoke("verify", "--against", "HEAD", "--json").stdout)
    assert {p["state"] for p in document["packages"]} == {"rebuilt"}
    project.edit("matrix.toml", "rev = ", "reev = ")
    project.git("commit", "-aqm", "broken")
    project.git("checkout", "-q", "HEAD~1", "--", ".")
    for words, says in {
        "HEAD": "--against HEAD: this version cannot read matrix.toml:",
        "nowhere": "bad revision 'nowhere'",
        "--all": "bad revision '--all'",
        "HEAD --pinned": "--against: runs no checks; leave --only and --pinned out",
    }.items():
        ref, *more = words.split()
        bad = project.invoke("verify", f"--against={ref}", *more)
        assert (bad.returncode, bad.stderr.count("\n"), bad.stdout) == (2, 1, "")
        assert says in bad.stderr
