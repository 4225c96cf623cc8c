"""`invoke verify --against REF`: which packages a change rebuilds, and the cause that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ONE, Project, needs_nix, write_recipes
from one_release import written_out

from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.verify import rebuilds
from build_pytorch.verify.rebuilds import Rebuilds

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


def swap(old: str, new: str) -> Edit:
    """Return an edit that replaces text that must be there."""

    def edit(text: str) -> str:
        assert old in text, old
        return text.replace(old, new)

    return edit


def swapped_rules(text: str) -> str:
    """Exchange two rules that both set variables."""
    one, other = (re.search(rf'\[\[rule\]\]\nid = "{i}"\n(?:[^\n]+\n)+', text) for i in ORDER)
    assert one
    assert other
    return text.replace(one[0], "\0").replace(other[0], one[0]).replace("\0", other[0])


ORDER = ("first", "second")
TWO_RULES = "".join(
    RULE.replace("no-nccl", name).replace("USE_NCCL", variable)
    for name, variable in zip(ORDER, ("USE_A", "USE_B"), strict=True)
)

TAG = 'rev = "v2.10.0"\nsubmodules'
TORCH = 'version = "2.10.0"\nowner = "pytorch"\nrepo = "pytorch"'
ALL = {*CHOSEN}
GPU = {*CHOSEN} - {"cpu-avx2"}
X86 = {*CHOSEN} - {"sm110-armv9"}
CASES: dict[str, tuple[Edit, Edit, set[str], str]] = {
    # what is changed in matrix.toml, in recipes, which variants are rebuilt, and the root cause
    "a flag of an ISA": (
        lambda text: swap('["avx2", "fma", "f16c"]', '["avx2", "fma", "bmi2"]')(
            swap('["-mavx2", "-mfma", "-mf16c"]', '["-mavx2", "-mfma", "-mbmi2"]')(text)
        ),
        str,
        {"sm90-avx2", "cpu-avx2"},
        "preConfigure: -mf16c -> -mbmi2",
    ),
    "a rule that begins": (
        lambda text: text + RULE,
        str,
        {"sm90-avx512"},
        "rule no-nccl begins to apply",
    ),
    "another order of rules": (
        swapped_rules,
        str,
        {"sm90-avx512"},
        "preConfigure: only order, layout, quotes or comments",
    ),
    "a pin": (
        swap(
            "6a030d535719c5190187c4cec156f335e95e3211", "7b030d535719c5190187c4cec156f335e95e3211"
        ),
        str,
        ALL,
        "nixpkgs 6a030d53 -> 7b030d53",
    ),
    "the limit of jobs": (
        swap("max_jobs = 32", "max_jobs = 16"),
        str,
        ALL,
        "ninjaFlags: -j32 -> -j16",
    ),
    "the hash of the source": (
        swap(
            "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ=",
            "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xA=",
        ),
        str,
        ALL,
        "src.hash: sha256-RKiZ",
    ),
    "the hash of a patch": (
        swap("sha256-i9InbxD5HtfonB", "sha256-j9InbxD5HtfonB"),
        str,
        GPU,
        "magma.patches: cuda-13.0-clockrate-fix.patch ",
    ),
    "a version of PyTorch": (
        lambda text: swap(TAG, TAG.replace("0.0", "0.1"))(
            swap(TORCH, TORCH.replace("0.0", "0.1"))(text)
        ),
        str,
        ALL,
        "version: 2.10.0 -> 2.10.1",
    ),
    "a name": (
        swap('pname = "pytorch210"', 'pname = "pytorch2100"'),
        str,
        ALL,
        "another name",
    ),
    "a Python": (
        lambda text: swap('python = { version = "3.13" }', 'python = { version = "3.12" }')(
            text.replace("python313", "python312")
        ),
        str,
        ALL,
        "input.python3: 3.13.0 -> 3.12.0",
    ),
    "a system feature": (
        swap('system_features = ["big-parallel"]', 'system_features = ["big-parallel", "kvm"]'),
        str,
        ALL,
        "requiredSystemFeatures: kvm added",
    ),
    "a comment of the script": (
        str,
        lambda text: text.replace("    # CPU instruction set", "    # CPU instructions"),
        ALL,
        "preConfigure: only order, layout, quotes or comments",
    ),
    "a blank in a script": (
        str,
        lambda text: text.replace("export CXXFLAGS=", "export  CXXFLAGS="),
        ALL,
        "preConfigure: only order, layout, quotes or comments",
    ),
    "a flag in one recipe": (
        str,
        lambda text: (
            text.replace('"-DCUDA_VERSION=13.0"', '"-DCUDA_VERSION=13.0" "-DX=1"')
            if 'pname = "pytorch210-python313-cuda13_0-sm90-avx2"' in text
            else text
        ),
        {"sm90-avx2"},
        "cmakeFlags: -DX=1 added",
    ),
    "a comment of the recipe": (
        str,
        lambda text: text.replace("# Two stages. ", "# Two steps. "),
        set(),
        "",
    ),
    "a product": (swap('"H100", "H200"', '"H100", "H200", "H300"'), str, set(), ""),
    "a driver": (
        swap('driver = "580.65.06"\nsource', 'driver = "590.44.01"\nsource'),
        str,
        set(),
        "",
    ),
}


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


def compared(before: Tree, root: Path, of_matrix: Edit, of_recipes: Edit) -> Rebuilds:
    """Compare the packages of CHOSEN before and after a change."""
    after = written(root / "after", of_matrix(before[0].text), of_recipes)
    chosen = [p for p in after[0].packages if p.variant.short_id in CHOSEN]
    return rebuilds.compare("main", before, after, chosen)


@needs_nix
@pytest.mark.parametrize("name", CASES)
def test_the_root_cause_is_named_for_what_is_rebuilt_and_for_nothing_else(
    before: Tree, tmp_path: Path, name: str
) -> None:
    of_matrix, of_recipes, expected, cause = CASES[name]
    if of_matrix is swapped_rules:
        before = written(tmp_path / "two", TEXT + TWO_RULES)
    found = compared(before, tmp_path, of_matrix, of_recipes)
    states = {change.package: change for change in found.packages}
    rebuilt = {name for name in CHOSEN if states[name].state == "rebuilt"}
    assert rebuilt == expected, states
    assert {states[name].state for name in {*CHOSEN} - rebuilt} <= {"unchanged", "text only"}
    assert found.is_none == (not expected)
    assert len({states[name].causes for name in rebuilt}) <= 3, "packages have causes in common"
    for variant in rebuilt:
        assert any(cause in text for text in states[variant].causes[:1]), states[variant]
        for companion in ("torchvision", "torchaudio"):
            assert states[f"{variant}+{companion}"].state in {"follows", "rebuilt"}


@needs_nix
def test_a_companion_is_rebuilt_alone(before: Tree, tmp_path: Path) -> None:
    found = compared(
        before,
        tmp_path,
        lambda text: swap("sha256-oktJHcT6T4f58pUO", "sha256-pktJHcT6T4f58pUO")(
            text.replace('"0.25.0"', '"0.25.1"').replace('"v0.25.0"', '"v0.25.1"')
        ),
        str,
    )
    assert {c.package.partition("+")[2] for c in found.of("rebuilt", "follows")} == {"torchvision"}
    assert not found.of("follows")


@needs_nix
def test_the_function_of_all_companions_rebuilds_them(before: Tree, tmp_path: Path) -> None:
    found = compared(before, tmp_path, str, lambda text: text.replace('echo "Jobs:', 'echo "jobs:'))
    assert {c.package for c in found.of("rebuilt") if "+" not in c.package} == ALL
    assert {c.causes[0] for c in found.of("rebuilt")} == {"preConfigure: Jobs: -> jobs:"}


@needs_nix
def test_packages_that_come_and_go_are_named(before: Tree, tmp_path: Path) -> None:
    after = written(tmp_path, TEXT.replace('"sm90", ', "", 1))
    gone = {p.id for p in before[0].packages} - {p.id for p in after[0].packages}
    found = rebuilds.compare("x", before, after, after[0].packages)
    assert {change.package for change in found.of("removed")} == gone != set()
    back = rebuilds.compare("x", after, before, before[0].packages)
    assert {change.package for change in back.of("new")} == gone


@needs_nix
def test_the_command_compares_with_a_commit(project: Project) -> None:
    project.commit()
    none = project.run("invoke", "verify", "--against", "HEAD", "--strict")
    assert (none.returncode, none.stdout.split("\n")[0]) == (0, "Nothing is rebuilt since HEAD.")
    project.edit("matrix.toml", "max_jobs = 32", "max_jobs = 16")
    assert project.run("invoke", "all").returncode == 0
    done = project.run("invoke", "verify", "--against", "HEAD", "--strict")
    assert done.returncode == 1
    assert "because ninjaFlags: -j32 -> -j16" in done.stdout
    document = json.loads(project.run("invoke", "verify", "--against", "HEAD", "--json").stdout)
    assert {p["state"] for p in document["packages"]} == {"rebuilt"}
    project.edit("matrix.toml", "rev = ", "reev = ")
    project.git("commit", "-aqm", "broken")
    project.git("checkout", "-q", "HEAD~1", "--", ".")
    broken = project.run("invoke", "verify", "--against", "HEAD")
    assert (broken.returncode, broken.stderr.count("\n")) == (2, 1)
    assert "--against HEAD: this version cannot read matrix.toml:" in broken.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--against", "nowhere"], '--against "nowhere": not a commit'),
        (["--against=--all"], '--against "--all": not a commit'),
        (
            ["--against", "HEAD", "--pinned"],
            "--against: runs no checks; leave --only and --pinned out",
        ),
    ],
)
def test_bad_input_is_one_line(project: Project, words: list[str], says: str) -> None:
    project.commit()
    done = project.run("invoke", "verify", *words)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert says in done.stderr
