"""Variants that are measured to be no better than another one, and are built only when named."""

from __future__ import annotations

import pytest
from conftest import PROJECT, needs_nix
from msgspec.structs import replace

from build_pytorch.base.errors import MatrixError
from build_pytorch.build.backends import BuildAction, BuildSettings
from build_pytorch.build.build_plan import make_plan
from build_pytorch.compare.comparison import alias_line
from build_pytorch.compare.measurement import Estimate, MeasuredSetting, Verdict
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import select_packages, session_ids

TEXT = (PROJECT / "matrix.toml").read_text()


def with_isas(*lines: str) -> Matrix:
    """Return the matrix with other values of ISAs."""
    return matrix_reader.parse(TEXT + "\n[cpu]\n" + "\n".join(lines))


def test_an_isa_with_evidence_makes_aliases_on_x86_alone() -> None:
    matrix = matrix_reader.parse(TEXT)
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
    matrix = matrix_reader.parse(TEXT.replace('cpu = ["avx2", "avx512", ', 'cpu = ["avx512", '))
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
    matrix = matrix_reader.parse(TEXT)
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
    packages = {v.short_id: v for v in matrix_reader.parse(TEXT).of_release("cuda13_0")}
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
        isa = matrix_reader.parse(f"{line}\n{TEXT}").cpus["avx512"]
        assert isa.same_as == "avx2"
        assert "2.10.0, cpu-avx512 / cpu-avx2, 1 thread: 0.99 (0.98 to 1.00), " in isa.evidence
