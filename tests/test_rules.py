"""Rules, pins, inherited releases and aliases: what they change, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from conftest import OLDER as SHORT
from conftest import PROJECT, needs_nix, write_recipes
from msgspec.structs import replace
from one_release import written_out

from build_pytorch.base import process
from build_pytorch.base.errors import BuildPytorchError, MatrixError
from build_pytorch.build.backends import BuildAction, BuildSettings
from build_pytorch.build.build_plan import make_plan
from build_pytorch.compare.comparison import alias_line
from build_pytorch.compare.measurement import Estimate, MeasuredSetting, Verdict
from build_pytorch.generate import recipes
from build_pytorch.hardware.own_builds import group_lines
from build_pytorch.matrix import matrix_reader, matrix_text, rules
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.selection import select_packages, session_ids
from build_pytorch.matrix.tables import Condition
from build_pytorch.matrix.versions import in_range
from build_pytorch.sources.fetchers import sources
from build_pytorch.verify import verification

WHOLE = written_out(SHORT)
RULE = """
[[rule]]
id = "{id}"
{when}
{effect}
reason = "for a test"
source = "https://example.org/x"
checked = "2026-11-21"
{more}
"""
RULES = WHOLE.count("\n[[rule]]\n")  #: in matrix.toml; the number of one more
FIRST_PIN = "6a030d535719c5190187c4cec156f335e95e3211"
SECOND_PIN = "fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3"
LIKE = '\n[release.other]\nlike = "cuda12_8"\nfolder = "other/.flox/pkgs"\n{more}\n'
OTHER_NAMES = (
    'names.gpu = "other-python{python}-cuda{cuda}"\nnames.cpu = "other-python{python}-cpu"'
)


@pytest.fixture(scope="module")
def all_releases() -> Matrix:
    return matrix_reader.parse(WHOLE)


def rule(id_: str, when: str, effect: str, more: str = "") -> str:
    return RULE.format(id=id_, when=when, effect=effect, more=more)


@needs_nix
def test_the_reason_of_a_rule_is_never_code(tmp_path: Path) -> None:
    own = rule("own", 'when.kind = ["gpu"]', 'effect.environment = { USE_X = "1" }')
    reason = "costs ${toString (1+1)} and ''"
    matrix = matrix_reader.parse(own.replace("for a test", reason) + WHOLE)
    variant = next(variant for variant in matrix.variants if variant.gpu)
    text = recipes.render(matrix)[variant.path]
    (line,) = [it.strip() for it in text.splitlines() if "costs" in it]
    (tmp_path / "x.nix").write_text(f"''{line}''")
    argv = ["nix-instantiate", "--eval", "--strict", "--json", str(tmp_path / "x.nix")]
    assert json.loads(process.output_of(argv)) == f"# {reason}"


NO_VARIANT = {
    "kind": ("mps",),
    "gpu": ("sm0",),
    "capability": ">99",
    "cpu": ("none",),
    "cuda": ">99",
    "torch_source": "neither",
    "pin_has": ("none",),
}
"""A value of each key of a condition that holds for no variant of the matrix."""


def test_each_key_of_a_condition_decides(all_releases: Matrix) -> None:
    assert set(NO_VARIANT) | {"not_in_default_capabilities"} == set(Condition.__struct_fields__)
    for key, value in NO_VARIANT.items():
        condition = replace(Condition(), **{key: value})
        assert not any(rules.holds(condition, variant) for variant in all_releases.variants), key


PATCH = "pytorch-pr-108847.patch"


@pytest.mark.parametrize(
    ("when", "ids"),
    [
        (f'pin_has = ["{PATCH}"]', {"l8"}),  # not where the torch of the pin is replaced
        ('pin_has = ["fix-cuda13.patch"]', {"l1"}),
    ],
)
def test_a_condition_asks_for_the_patches_of_the_pin(when: str, ids: set[str]) -> None:
    """l8 and l13 are PyTorch 2.9.1 and 2.10.0 on one pin, l1 is 2.8.0 on an older one."""
    text = (PROJECT / "examples/all-lines/matrix.toml").read_text()
    facts = '[pin.autumn_2025.facts]\nof = "fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3"\n'
    text += f'\n{facts}magma_patches = ["fix-cuda13.patch"]\n'
    matrix = matrix_reader.parse(text)
    condition = msgspec.toml.decode(when, type=Condition)
    variants = [matrix.of_release(name)[0] for name in ("l1", "l8", "l13")]
    assert {v.release_name for v in variants if rules.holds(condition, v)} == ids


def test_a_condition_asks_for_gpus_that_libraries_of_the_pin_leave_out() -> None:
    """nixpkgs compiles NCCL and MAGMA for default capabilities; one that is not known is none."""
    condition = Condition(not_in_default_capabilities=True)

    def left_out(text: str) -> set[str | None]:
        variants = matrix_reader.parse(text).of_release("cuda12_8")
        return {v.gpu_key for v in variants if rules.holds(condition, v)}

    assert left_out(WHOLE) == {"sm61"}
    place = ("pin", "autumn_2025", "facts", "cuda_sets", "cudaPackages_12_8", "capabilities")
    others = ["7.5", "8.0", "8.6", "8.9", "10.0", "12.0"]
    assert left_out(matrix_text.with_values(WHOLE, {place: others})) == {"sm61", "sm90"}
    unknown = matrix_text.with_values(WHOLE, {place: None})
    assert {"sm61", "sm90", "sm120"} <= left_out(unknown)
    assert None not in left_out(unknown)


def by_id(matrix: Matrix, name: str) -> Variant:
    return next(v for v in matrix.variants if v.id == name)


def error_of(text: str) -> str:
    with pytest.raises(MatrixError) as caught:
        matrix_reader.parse(text)
    return str(caught.value)


def edited(*edits: tuple[str, str]) -> str:
    text = WHOLE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


# --- conditions ---


@pytest.mark.parametrize(
    ("version", "bounds", "holds"),
    [
        ("12.9", ">=12.8, <13.0", True),
        ("13.0", ">=12.8, <13.0", False),
        ("2.10.0", ">2.9", True),  # numbers, not texts
        ("2.10.0", "==2.10", True),
        ("2.10.0rc1", ">=2.10", False),
        ("2.10.0rc1", "<2.10, >2.9", True),
        ("2.11.0.dev20251222", ">=2.11", False),
        ("2.11.0.dev20251222", ">=2.10, <2.11", True),
        ("7.0", "<7.5", True),
        ("12.0", "<7.5", False),
        ("7.5", "<=7.5", True),
    ],
)
def test_a_range_compares_numbers(version: str, bounds: str, holds: bool) -> None:
    assert in_range(version, bounds) is holds


def test_rules_of_the_matrix_apply_where_their_conditions_hold(all_releases: Matrix) -> None:
    pascal = {"no-cudnn-below-7-5", "own-libraries"}
    common = {"magma-clock-rate", "cccl-headers", "find-cuda-toolkit", "cupti-paths"}
    common |= {"one-architecture", "compress-size"}
    expected = {
        "cuda13_0/sm120-avx2": common,
        "cuda13_0/sm121-armv9": common | {"arch-specific-kernels"},
        "cuda13_0/sm110-armv9": common | {"own-libraries"},
        "cuda13_0/cpu-avx2": set(),
        "cuda12_8/sm61-avx": pascal | {"no-avx2-libraries", "no-avx2-kernels"},
        "cuda12_8/sm61-avx2": pascal,
        "cuda12_8/sm120-avx": {"no-avx2-libraries", "no-avx2-kernels"},
        "cuda12_8/sm120-avx2": set(),
        "cuda12_8/cpu-armv9": set(),
    }
    for name, ids in expected.items():
        assert {rule.id for rule in by_id(all_releases, name).effects.rules} == ids, name


def test_a_rule_ends_with_a_pin_that_has_the_fix(tmp_path: Path) -> None:
    mended = edited(
        ('torch = "2.9.1"\npython', 'torch = "2.9.1"\nhas = ["magma-clock-rate"]\npython')
    )
    matrix = matrix_reader.parse(mended)
    variant = by_id(matrix, "cuda13_0/sm120-avx2")
    assert variant.effects.patches == ()
    assert "clockrate" not in recipes.render(matrix)[variant.path]
    ((check, severity, found, _),) = findings(tmp_path, mended)
    assert (check, severity) == ("rules", "warning")
    assert "magma-clock-rate: its `until` holds" in found


# --- what verification reports ---


def findings(tmp_path: Path, text: str) -> list[tuple[str, str, str, int]]:
    matrix = matrix_reader.parse(text)
    result = verification.verify(matrix, tmp_path, only=["matrix"])
    return [(f.check, f.severity, f.found, f.line) for f in result.findings]


def test_a_rule_that_never_applies_is_a_warning_with_its_line(tmp_path: Path) -> None:
    text = WHOLE + rule("unused", 'when.capability = ">=99.0"', 'effect.fixes = ["cccl-shim"]')
    ((check, severity, found, line),) = findings(tmp_path, text)
    assert (check, severity, found) == ("rules", "warning", "unused applies to no variant")
    assert text.split("\n")[line - 1] == "[[rule]]"
    assert text.split("\n")[line] == 'id = "unused"'


def test_contradicting_rules_are_an_error(tmp_path: Path) -> None:
    text = WHOLE + rule("again", 'when.cpu = ["avx"]', 'effect.environment = { USE_FBGEMM = "1" }')
    ((check, severity, found, _),) = findings(tmp_path, text)
    assert (check, severity) == ("rules", "error")
    assert found == "again and no-avx2-libraries set USE_FBGEMM to different values"
    flags = 'effect.cmake_flags = ["-DC_AVX2_FOUND=TRUE"]'
    ((_, _, found, _),) = findings(tmp_path, WHOLE + rule("flag", 'when.cpu = ["avx"]', flags))
    assert found == "flag and no-avx2-kernels set -DC_AVX2_FOUND to different values"


# --- inherited releases ---


def test_a_release_like_another_has_its_values_and_its_own_names() -> None:
    more = 'python.version = "3.12"\n' + OTHER_NAMES
    matrix = matrix_reader.parse(WHOLE + LIKE.format(more=more))
    ours, theirs = matrix.of_release("other"), matrix.of_release("cuda12_8")
    assert [v.short_id for v in ours] == [v.short_id for v in theirs]
    assert {v.python_set for v in ours} == {"python312Packages"}
    assert ours[0].package == "pytorch-other-python312-cuda12_8-sm120-avx"
    assert ours[0].pname == "pytorch28-other-python312-cuda12_8-sm120-avx"
    assert matrix.releases["other"].notes is None
    text = recipes.render(matrix)[ours[0].path]
    assert "(nixpkgs_pinned.python312Packages.torch.override {" in text


def test_an_edit_of_an_inherited_value_belongs_to_the_release_alone() -> None:
    text = WHOLE + LIKE.format(more=OTHER_NAMES)
    new = matrix_text.with_values(text, {("release", "other", "python", "version"): "3.12"})
    assert new == f'{text.rstrip()}\n\n[release.other.python]\nversion = "3.12"\n'
    versions = {
        name: release.python.version for name, release in matrix_reader.parse(new).releases.items()
    }
    assert {name for name, version in versions.items() if version == "3.12"} == {"other"}


def test_an_inherited_source_is_one_source() -> None:
    like = '\n[release.copy]\nlike = "cuda13_0"\ncatalog = "copy"\nfolder = "copy/.flox/pkgs"\n'
    found = [(s.name, s.trail) for s in sources(matrix_reader.parse(WHOLE + like))]
    assert found == [
        ("torch", ("release", "cuda13_0", "torch", "hash")),
        ("torchvision", ("release", "cuda13_0", "companion", "torchvision", "hash")),
        ("torchaudio", ("release", "cuda13_0", "companion", "torchaudio", "hash")),
        ("nixpkgs", ("pin", "early_2026", "sha256")),
        ("nixpkgs", ("pin", "autumn_2025", "sha256")),
        ("torch", ("release", "nightly", "torch", "hash")),
        ("cuda-packages", ("release", "nightly", "cuda", "packages_from", "hash")),
        ("nixpkgs", ("pin", "february_2026", "sha256")),
        ("patch", ("patch", "magma_clock_rate", "hash")),
    ]


def test_arrays_are_replaced_not_added() -> None:
    group = '\n[[release.other.group]]\ntitle = "one"\ncpu = ["avx2"]\n'
    matrix = matrix_reader.parse(WHOLE + LIKE.format(more=OTHER_NAMES) + group)
    assert [v.id for v in matrix.of_release("other")] == ["other/cpu-avx2"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('like = "x"', 'release.x.like: found "x"; allowed: the key of another release'),
        ('like = "cuda12"', 'in no circle; did you mean "cuda12_8"?'),
        (
            'like = "y"\n[release.y]\nlike = "x"',
            'release.x.like: found "y"; allowed: the key of another release, in no circle\n',
        ),
        ('like = "a\\nb"', r'release.x.like: found "a\nb"; allowed: the key of a'),
        ('like = ["y"]', 'release.x.like: found ["y"]; allowed: the key of a'),
        (
            'like = "cuda12_8"\nfolder = "o"',
            "release.x.names: found pytorch-python313-cuda12_8-sm120-avx, a package of rel",
        ),
        (
            'like = "cuda12_8"\nfolder = "o"\nnames.package = "other"',
            "release.x.companion.torchvision: found torchvision-python313-cuda12_8-sm120-avx, a p",
        ),
        (
            'like = "cuda12_8"',
            "which release.cuda12_8 writes as well; allowed: another folder",
        ),
    ],
)
def test_a_wrong_like_is_reported_with_its_place(more: str, says: str) -> None:
    assert says in error_of(f"{WHOLE}\n[release.x]\n{more}\n")


def test_the_same_names_are_allowed_in_another_catalog() -> None:
    matrix = matrix_reader.parse(WHOLE + LIKE.format(more='catalog = "other"'))
    assert len(matrix.of_release("other")) == 57
    with pytest.raises(BuildPytorchError, match="is ambiguous: cuda12_8/sm61-avx, other/sm61-avx"):
        select_packages(matrix, "pytorch-python313-cuda12_8-sm61-avx")


# --- a Python beside the default one of the pin ---


@needs_nix
def test_python_3_14_beside_a_pin_whose_default_is_3_13(tmp_path: Path) -> None:
    text = edited(('version = "3.13"', 'version = "3.14"')).replace("python313", "python314")
    matrix = matrix_reader.parse(text)
    variant = by_id(matrix, "cuda13_0/sm120-avx2")
    text = recipes.render(matrix)[variant.path]
    assert "python314Packages = prev.python314Packages.override" in text
    assert "(nixpkgs_pinned.python314Packages.torch.override" in text
    path = tmp_path / variant.path
    path.parent.mkdir(parents=True)
    only = ["text", "evaluation"]
    for recipe, found in (
        (text, set()),
        (text.replace("(nixpkgs_pinned.python314P", "(nixpkgs_pinned.python3P"), {"eval-names"}),
        (text.replace("prev.python314P", "prev.python313P"), {"eval-names"}),
    ):
        path.write_text(recipe)
        result = verification.verify(matrix, tmp_path, variants=[variant], only=only)
        assert found <= {f.check for f in result.findings}, recipe
        assert bool(found) == bool(result.findings)


@needs_nix
def test_a_python_that_nobody_knows_yet_is_no_obstacle(tmp_path: Path) -> None:
    text = WHOLE.replace('python = "3.13"', 'python = "3.19"')
    assert text != WHOLE
    matrix = matrix_reader.parse(text)
    variant = by_id(matrix, "cuda12_8/sm120-avx")
    write_recipes(tmp_path, matrix)
    result = verification.verify(matrix, tmp_path, variants=[variant], only=["evaluates"])
    assert not result.findings


# --- GPUs that the libraries of nixpkgs leave out ---

OLD_GPUS = """
[[release.cuda12_8.group]]
title = "Volta"
gpu = ["sm70"]
cpu = ["avx2"]
"""


@needs_nix
def test_a_gpu_without_code_in_nixpkgs_gets_libraries_for_it_by_a_condition(tmp_path: Path) -> None:
    matrix = matrix_reader.parse(WHOLE + OLD_GPUS)
    lacking = {"sm61", "sm70", "sm110"}
    for variant in matrix.variants:
        is_one = variant.cuda and (variant.gpu_key in lacking or variant.cuda.version == "13.0")
        assert ("own-libraries" in variant.effects.fixes) == bool(is_one), variant.id
    variant = by_id(matrix, "cuda12_8/sm70-avx2")
    text = recipes.render(matrix)[variant.path]
    for part in ('arch = "70"; in', '"-DCMAKE_CUDA_ARCHITECTURES=70"', "MIN_ARCH=700"):
        assert part in text
    (tmp_path / variant.path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / variant.path).write_text(text)
    only = ["text", "evaluation", "hooks"]
    result = verification.verify(matrix, tmp_path, variants=[variant], only=only)
    assert [(f.check, f.found) for f in result.findings] == []


def test_capabilities_of_all_packages_leave_nothing_to_single_libraries() -> None:
    """Orin takes the CUDA packages for Jetson, which are compiled for what the config names."""
    matrix = matrix_reader.parse(WHOLE)
    lines = group_lines("cuda12_8", "sm87", "armv8_2")
    new = matrix_reader.parse(f"{matrix.text}\n{lines}")
    assert by_id(new, "cuda12_8/sm87-armv8_2").effects.fixes == ("own-capabilities",)


# --- selection ---


def test_an_id_names_its_release_where_there_is_more_than_one(all_releases: Matrix) -> None:
    for name, id_ in {"cuda12_8/sm120-avx512": "", "sm61-avx": "cuda12_8/sm61-avx"}.items():
        assert [v.id for v in select_packages(all_releases, name)] == [id_ or name]
    assert len(select_packages(all_releases, "sm120-*")) == 4 + 7
    assert len(select_packages(all_releases, "cuda12_8")) == 57


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        (
            "sm120-avx2",
            '"sm120-avx2" is ambiguous: cuda13_0/sm120-avx2, cuda12_8/sm120-avx2; name one of them',
        ),
        ("cuda12_8/sm121-armv9", 'no package matches "cuda12_8/sm121-armv9"; did you mean'),
        ("cuda12", 'no package matches "cuda12"; did you mean "cuda12_8"?'),
    ],
)
def test_a_selection_that_cannot_be_meant_is_an_error(
    all_releases: Matrix, patterns: str, says: str
) -> None:
    with pytest.raises(BuildPytorchError) as caught:
        select_packages(all_releases, patterns)
    assert says in str(caught.value)


def test_sessions_have_the_id_and_the_release_as_a_tag(all_releases: Matrix) -> None:
    sessions = dict(session_ids(all_releases))
    assert len(sessions) == len(all_releases.variants)
    assert {"sm61", "avx", "cuda12_8", "x86_64-linux"} <= set(sessions["cuda12_8/sm61-avx"])


# --- two releases in one folder ---


@pytest.mark.slow
@needs_nix
def test_two_releases_in_one_folder_verify(tmp_path: Path) -> None:
    """Counts, retired pins and clean-up lists belong to a release, not to a folder."""
    shared = WHOLE.replace("releases/cuda12_8/.flox/pkgs", ".flox/pkgs")
    matrix = matrix_reader.parse(shared)
    write_recipes(tmp_path, matrix)
    assert len(list((tmp_path / ".flox/pkgs").iterdir())) == 101
    only = ["matrix", "text", "evaluation"]
    result = verification.verify(matrix, tmp_path, only=only)
    assert [(f.path, f.check, f.found) for f in result.findings] == []


def test_a_gpu_variant_with_mkl_says_so() -> None:
    before = by_id(matrix_reader.parse(WHOLE), "cuda13_0/sm90-avx2")
    edit = ('title = "GPU x86"\n', 'title = "GPU x86"\nblas = "mkl"\n')
    after = by_id(matrix_reader.parse(edited(edit)), "cuda13_0/sm90-avx2")
    assert (before.passthru["blasProvider"], after.passthru["blasProvider"]) == ("cublas", "mkl")


@needs_nix
def test_compiler_flags_for_all_gpu_recipes_are_one_rule(tmp_path: Path) -> None:
    flags = '{ NVCC_APPEND_FLAGS = "-Xfatbin -compress-all", NIX_CXXFLAGS_COMPILE = "-O3" }'
    text = SHORT + rule("flags", 'when.kind = ["gpu"]', f"effect.environment = {flags}")
    matrix = matrix_reader.parse(text)
    variants = [by_id(matrix, "cuda13_0/sm90-avx2"), by_id(matrix, "cuda13_0/cpu-avx2")]
    write_recipes(tmp_path, matrix)
    has = [
        '"-Xfatbin -compress-all -compress-mode=size"' in (tmp_path / v.path).read_text()
        for v in variants
    ]
    assert has == [True, False]
    only = ["text", "evaluation", "hooks"]
    result = verification.verify(matrix, tmp_path, variants=variants, only=only)
    assert [(f.check, f.found) for f in result.findings] == []
    for name in ("CXXFLAGS", "TERM", "USE_CUDA", "PYTORCH_BUILD_VERSION", "TORCH_CUDA_ARCH_LIST"):
        wrong = rule("x", 'when.kind = ["gpu"]', f'effect.environment = {{ {name} = "1" }}')
        assert "for flags NIX_CXXFLAGS_COMPILE or NVCC_APPEND_FLAGS" in error_of(SHORT + wrong)
    for flag in ("USE_CUDA=OFF", "CUDA_VERSION=11.0", "TORCH_BUILD_VERSION=1"):
        wrong = rule("x", 'when.kind = ["gpu"]', f'effect.cmake_flags = ["-D{flag}"]')
        assert "a CMake option such as -DUSE_X=OFF that recipes do not set" in error_of(
            SHORT + wrong
        )


# --- variants that are measured to be no better than another one ---

PROJECT_TEXT = (PROJECT / "matrix.toml").read_text()


def with_isas(*lines: str) -> Matrix:
    """Return the matrix with other values of ISAs."""
    return matrix_reader.parse(PROJECT_TEXT + "\n[cpu]\n" + "\n".join(lines))


def test_an_isa_with_evidence_makes_aliases_on_x86_alone() -> None:
    matrix = matrix_reader.parse(PROJECT_TEXT)
    aliases = {p.id: p.alias_of for p in matrix.packages if p.alias_of}
    assert aliases["cuda13_0/sm90-avx512bf16"] == "cuda13_0/sm90-avx2"
    assert aliases["cuda12_8/cpu-avx512"] == "cuda12_8/cpu-avx2"
    assert aliases["cuda13_0/sm90-avx512+torchvision"] == "cuda13_0/sm90-avx2+torchvision"
    assert not any(name.partition("-")[2].startswith(("avx2", "armv")) for name in aliases)
    tags = dict(session_ids(matrix))
    assert tags["cuda13_0/sm90-avx512"] == ["alias"]
    buildable = {name for name, its in tags.items() if "buildable" in its}
    possible = {v.id for v in matrix.variants if not (v.impossible or v.untaken_hashes)}
    assert buildable == possible - aliases.keys()


def test_a_matrix_may_have_no_aliases() -> None:
    matrix = with_isas(*(f'{isa}.same_as = ""' for isa in ("avx512", "avx512bf16", "avx512vnni")))
    assert not any(package.alias_of for package in matrix.packages)
    assert "buildable" in dict(session_ids(matrix))["cuda13_0/sm90-avx512"]


def test_a_release_without_the_other_isa_has_no_aliases() -> None:
    matrix = matrix_reader.parse(
        PROJECT_TEXT.replace('cpu = ["avx2", "avx512", ', 'cpu = ["avx512", ')
    )
    assert not any(v.alias_of for v in matrix.of_release("cuda13_0"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('avx512.evidence = ""', 'cpu.avx512.same_as: found "avx2"; allowed: only with `evidence`'),
        ('avx512.same_as = "avx512vnni"', "of a lower level"),
        ('avx512.same_as = "armv9"', "an ISA of x86_64-linux"),
        ('avx512bf16.same_as = "avx512"', "the same as no other"),
    ],
)
def test_wrong_aliases_are_refused(line: str, says: str) -> None:
    with pytest.raises(MatrixError) as error:
        with_isas(line)
    assert says in str(error.value)


@needs_nix
@pytest.mark.parametrize(
    ("patterns", "skipped"),
    [
        ("sm90-avx2,sm90-avx512", "sm90-avx512"),
        ("sm90-avx2,sm90-avx512+torchvision", "sm90-avx512+torchvision"),
        ("sm90-avx512", ""),
    ],
)
def test_an_alias_is_skipped_where_its_variant_is_asked_for(patterns: str, skipped: str) -> None:
    matrix = matrix_reader.parse(PROJECT_TEXT)
    packages = select_packages(matrix, ",".join(f"cuda13_0/{it}" for it in patterns.split(",")))
    plan = make_plan(matrix, packages, BuildSettings(root=PROJECT, backend="nix", dry_run=True))
    steps = {step.package.short_id: step for step in plan.steps}
    assert steps[skipped or "sm90-avx512"].reason.startswith(
        ("an alias", "cuda13_0/sm90-avx512 sk")
    ) == bool(skipped)
    assert "sm90-avx2" not in steps or steps["sm90-avx2"].action == BuildAction.BUILD


@pytest.mark.parametrize(
    ("ids", "verdict", "is_alias"),
    [
        (("cpu-avx512", "cpu-avx2"), Verdict.EQUAL, True),
        (("cpu-avx512", "cpu-avx2"), Verdict.SLOWER, True),
        (("cpu-avx512", "cpu-avx2"), Verdict.FASTER, False),
        (("cpu-avx512", "cpu-avx2"), Verdict.NOISY, False),
        (("cpu-avx2", "cpu-avx512"), Verdict.EQUAL, False),
        (("sm90-avx512", "cpu-avx2"), Verdict.EQUAL, False),
    ],
)
def test_a_comparison_prints_the_line_that_makes_an_alias(
    ids: tuple[str, str], verdict: Verdict, is_alias: bool
) -> None:
    packages = {v.short_id: v for v in matrix_reader.parse(PROJECT_TEXT).of_release("cuda13_0")}
    a, b = (packages[name] for name in ids)
    mean = Estimate(ratio=0.99, low=0.98, high=1.0, verdict=verdict)
    setting = MeasuredSetting(
        title="1 thread", gpu="", verdict=verdict, reasons=(), mean=mean, workloads={}, rounds=(),
    )  # fmt: skip
    line = alias_line(a, b, [setting], "a CPU")
    assert bool(line) == is_alias
    if line:
        lacking = replace(
            setting, verdict=Verdict.SLOWER, mean=replace(mean, verdict=Verdict.EQUAL)
        )
        assert not alias_line(a, b, [lacking], "a CPU")
        isa = matrix_reader.parse(f"{line}\n{PROJECT_TEXT}").cpus["avx512"]
        assert isa.same_as == "avx2"
        assert "2.10.0, cpu-avx512 / cpu-avx2, 1 thread: 0.99 (0.98 to 1.00), " in isa.evidence
