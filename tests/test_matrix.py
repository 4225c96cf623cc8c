"""matrix.toml: its variants, what is refused and how, its schema and its reference."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from conftest import OLDER, ONE, PROJECT, WHOLE

from build_pytorch.base.errors import MatrixError
from build_pytorch.generate import matrix_reference
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.field_types import Trail, dotted, misfits
from build_pytorch.matrix.matrix_text import line_of
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import MatrixFile

SCHEMA = PROJECT / "build_pytorch/matrix/matrix.schema.json"
OF_TORCH = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ="
OF_VISION = "sha256-oktJHcT6T4f58pUO+HSBpbyS1ISH3zDlTsXQh6PcMy4="
CPU_ONLY = 'title = "CPU-only"'
X86 = 'title = "GPU x86"\n'
ARM = 'title = "GPU ARM"\n'
RULE = (
    '[[rule]]\nid = "x"\nreason = "r"\nsource = "https://example.org/x"\nchecked = "2026-11-21"\n'
    "effect = {}\n"
)
EARLY = "6a030d535719c5190187c4cec156f335e95e3211"
PIN = 'date = "d"\ntorch = "2.9.1"\npython = "3.13"\nsource = "s"\nchecked = "2026-11-21"'
NAMES = 'names = { cpu = "python{python}-torch{torch}-cpu" }'
OWN_GPU = 'capability = "13.0"\nfamily = "New"\nhosts.x86_64-linux = ["New"]\n'


def edited(*edits: tuple[str, str], text: str = WHOLE) -> str:
    """The text after edits, each of its first place; a table is added where the old text is ""."""
    for old, new in edits:
        assert old in text, f"{old!r} is not in matrix.toml"
        text = text.replace(old, new, 1) if old else f"{text}\n{new}\n"
    return text


def refusal(text: str) -> list[str]:
    """The lines of the reader's message; those of an offered table belong to the line above."""
    with pytest.raises(MatrixError) as caught:
        matrix_reader.parse(text)
    return re.split(r"\n(?! )", str(caught.value))


def error_of(*edits: tuple[str, str], text: str = OLDER) -> str:
    """The message after edits of matrix.toml, which must be one line."""
    (line,) = refusal(edited(*edits, text=text))
    return line


def header_of(fragment: str, text: str = OLDER) -> int:
    """The line of the table that has a fragment."""
    before = text[: text.index(fragment)]
    return max((n for n, line in enumerate(before.split("\n"), 1) if line[:1] == "["), default=1)


# --- variants ---


def test_a_group_may_have_a_folder() -> None:
    own = 'cpu = ["armv8_2", "armv9"]\nfolder = "arm/{release}/.flox/pkgs"'
    text = ONE.replace("sm110-armv8_2.nix", "sm90-avx2.nix")  # of the clean-up list
    text = text.replace("sm110-armv9.nix", "sm90-avx512.nix")
    found = matrix_reader.parse(text.replace('cpu = ["armv8_2", "armv9"]', own, 1))
    moved = [package for package in found.packages if package.platform == "aarch64-linux"]
    folders = {"arm/cuda13_0/.flox/pkgs", "arm/cuda13_0/companions/.flox/pkgs"}
    assert {package.folder for package in moved} == folders <= set(found.folders)


def test_the_matrix_makes_variants_in_the_order_of_its_groups(matrix: Matrix) -> None:
    ids = [variant.id for variant in matrix.variants]
    x86 = ("avx2", "avx512", "avx512bf16", "avx512vnni")
    gpus = ("sm120", "sm121", "sm110", "sm103", "sm100", "sm90", "sm89", "sm86", "sm80")
    assert ids == [
        *(f"{gpu}-{isa}" for gpu in gpus for isa in x86),
        *(f"{gpu}-{isa}" for gpu in ("sm110", "sm121") for isa in ("armv8_2", "armv9")),
        *(f"cpu-{isa}" for isa in x86),
    ]
    assert [sum(v.phase.number == n for v in matrix.variants) for n in (2, 3, 4)] == [36, 4, 4]


def test_names_follow_the_release(matrix: Matrix) -> None:
    by_id = {variant.id: variant for variant in matrix.variants}
    gpu, cpu = by_id["sm120-avx512"], by_id["cpu-avx2"]
    assert gpu.path == ".flox/pkgs/pytorch-python313-cuda13_0-sm120-avx512.nix"
    assert gpu.pname == "pytorch210-python313-cuda13_0-sm120-avx512"
    assert cpu.path == ".flox/pkgs/pytorch-python313-cpu-avx2.nix"
    assert cpu.pname == "pytorch210-python313-cpu-avx2"
    assert (gpu.driver, cpu.driver) == ("580.65.06", "")
    assert (gpu.title, gpu.version, gpu.attribute) == ("PyTorch", "2.10.0", gpu.package)


def test_impossible_host_is_derived_from_the_hosts_that_exist(matrix: Matrix) -> None:
    impossible = {v.id: v.impossible for v in matrix.variants if v.status == "impossible-host"}
    isas = ("avx2", "avx512", "avx512bf16", "avx512vnni")
    assert set(impossible) == {f"{gpu}-{isa}" for gpu in ("sm110", "sm121") for isa in isas}
    assert impossible["sm121-avx2"] == (
        "no x86_64-linux machine has SM121: GB10 (DGX Spark) on aarch64-linux only"
    )
    moved = matrix_reader.parse(f'{ONE}\n[gpu.sm121]\nhosts = {{ x86_64-linux = ["GB10"] }}\n')
    statuses = {v.id: v.status for v in moved.variants}
    assert statuses["sm121-avx2"] == "buildable"
    assert statuses["sm121-armv9"] == "impossible-host"


def test_a_row_of_the_matrix_replaces_single_known_values() -> None:
    text = f'{WHOLE}\n[gpu.sm120]\nfamily = "Own"\n[[rule]]\nid = "cccl-headers"\nreason = "ours"\n'
    matrix, known = matrix_reader.parse(text), known_hardware.load()
    assert matrix.gpus["sm120"].family == "Own"
    assert matrix.gpus["sm120"].hosts == known.gpu["sm120"].hosts
    (own,) = [rule for rule in matrix.rules if rule.id == "cccl-headers"]
    (theirs,) = [rule for rule in known.rule if rule.id == "cccl-headers"]
    assert (own.reason, own.effect, own.when) == ("ours", theirs.effect, theirs.when)
    assert matrix.own_rules == (own,)
    assert matrix.gpus["sm35"] == matrix_reader.parse(WHOLE).gpus["sm35"]


def test_a_gpu_and_an_isa_that_nobody_knows_are_a_table_of_five_lines() -> None:
    (offered,) = refusal(WHOLE.replace('"sm61"', '"sm130"', 1))
    assert len([line for line in offered.split("\n") if line.startswith("  ")]) == 5
    text = WHOLE.replace('gpu = ["sm61"]', 'gpu = ["sm130"]').replace('"avx", "avx2"]', '"new"]')
    offered = "\n".join(refusal(text))
    rows = "\n".join(line.strip() for line in offered.split("\n") if line.startswith("  "))
    rows = rows.replace("[cpu", "\n[cpu").replace("-mFLAG", "-mavx").replace('["FLAG"]', '["avx"]')
    rows = rows.replace('first_cuda = "13.0"', 'first_cuda = "12.0"')
    ids = {variant.id for variant in matrix_reader.parse(f"{text}\n{rows}\n").variants}
    assert "cuda12_8/sm130-new" in ids


def test_missing_cpu_flags_are_in_the_order_of_the_matrix(matrix: Matrix) -> None:
    avx512, missing = matrix.cpus["avx512"], ("avx512dq", "avx512vl", "avx512bw")
    assert missing_cpu_flags(avx512, ("fma", "avx512f", "avx2")) == missing
    assert missing_cpu_flags(avx512, avx512.cpuinfo) == ()


# --- mistakes ---

MISTAKES = [
    # misspelled, missing and mistyped
    ("", '[gpu.sm121]\ncapabilty = "12.1"', "gpu.sm121.capabilty", 'did you mean "capability"?'),
    ("", "[gpu.sm121]\ncapability = 12.1", "gpu.sm121.capability", "found 12.1; allowed: a dotted"),
    ("max_jobs = 32", "max_jobs = 32\nrequire_builder_feature = 1", "feature", "true or false"),
    ("[release.nightly.torch]", "[release.nightly.trch]", "nightly.trch", 'you mean "torch"?'),
    ("", '[cpu.avx]\nplatform = "x86-linux"', "cpu.avx.platform", 'you mean "x86_64-linux"?'),
    ("", "[gpu.sm121]\nhosts = 3", "gpu.sm121.hosts", "found 3; allowed: a table with at least"),
    ("max_jobs = 32", "max_jobs = 0", "build.max_jobs", "from 1 to 1024"),
    ("max_jobs = 32", "max_jobs = 32.0", "build.max_jobs", "found 32.0; allowed: a number"),
    ("max_jobs = 32", "max_jobs = 10:00:00", "build.max_jobs", "the date or time 10:00:00 without"),
    ("max_jobs = 32\n", "", "release.cuda13_0.build.max_jobs", "missing; add it"),
    ("", "[gpu.sm120]\nhosts.x86-64-linux = []", "x86-64-linux", '"x86_64-linux"?'),
    ('cpu = ["armv8_2", "armv9"]', "cpu = []", "group[1].cpu", "found []; allowed: a list with"),
    ("", "pin = 3", "pin.february_2026.pin", "unknown key"),
    ("companion.torchvision", "companion.tochvision", "tochvision", 'did you mean "torchvision"?'),
    # values of the wrong form
    ("", '[gpu.sm121]\ncapability = "sm_121"', "gpu.sm121.capability", "never sm_120"),
    ("", "[gpu.sm121]\nchecked = 2026-11-21", "gpu.sm121.checked", "without quotes; allowed: a d"),
    ('rev = "v2.10.0"', 'rev = "main"', "torch.rev", "never a branch"),
    ('rev = "6a030d5', 'rev = "6a030d', "pin.early_2026.rev", "40 hex digits"),
    ('hash = "sha256-RKi', 'hash = "sha256-RK', "torch.hash", "an SRI hash"),
    ('hash = "sha256-RKi', 'hash = "sha512-RKi', "torch.hash", "an SRI hash"),
    ('gpu = "python{python}-cuda{cuda}"', 'gpu = "python313-cuda13.0"', "gpu", "a dot breaks"),
    ("2.10.0.dev20251015", "2.10.0.dev20251315", "nightly.torch.version", "2.11.0.dev20251222"),
    (X86, f'{X86}blas = "blis"\n', "group[0].blas", 'found "blis"; allowed: mkl or openblas'),
    ("", '[cpu.armv9]\nbuilder_feature = "gccarch armv9"', "builder_feature", "a system feature"),
    ("", "[cpu.avx512]\nlevel = 0", "cpu.avx512.level", "from 1 to 99"),
    ("", f'{RULE}when.capability = "7.5"', "rule[0].when.capability", "bounds of a version"),
    ("", RULE, "rule[0].when", "missing; add it"),
    # unknown names
    ('"sm120", "sm121"', '"sm120", "sm212"', "group[0].gpu[1]", 'did you mean "sm121"?'),
    ('"sm61"', '"sm130"', "release.cuda12_8.group[1].gpu[0]", "or add its table:\n  [gpu.sm130]"),
    ('pin = "autumn_2025"', 'pin = "x"', "nixpkgs.pin", "allowed: early_2026, autumn_2025, f"),
    ('pin = "autumn_2025"', 'pin = "autum_2025"', "nixpkgs.pin", 'did you mean "autumn_2025"?'),
    ("", f'{RULE}when.cpu = ["avx3"]', "rule[0].when.cpu[0]", 'found "avx3"'),
    ("", f'{RULE}when.gpu = ["s"]', "rule[0].when.gpu[0]", 'found "s"; allowed: sm121'),
    ("", f'{RULE}when = {{}}\nuntil.cpu = ["y"]', "rule[0].until.cpu[0]", "; or add its table"),
    ("", '[[rule]]\nid = "cccl-headers"\neffect.patches = ["x"]', "patches[0]", "allowed: magma_c"),
    # values that contradict each other
    ('"sm110", "sm121"]', '"sm110", "sm110"]', "group[1]", "sm110-armv8_2 twice"),
    ("", '[gpu.sm121]\ncapability = "12.0"', "gpu.sm121.capability", "the same digits"),
    ("", '[gpu.sm61]\nlast_cuda = "12.6"', "cuda12_8.group[1].gpu[0]", "to 12.6"),
    (NAMES, 'names = { pname = "pytorch29" }', "cuda12_8.names.pname", 'a name with "28"'),
    ("python{python}-cuda{cuda}", "python{python}-cuda12_8", "names.gpu", 'a name with "cuda13_0"'),
    ('cpu = "python{python}-cpu"', 'cpu = "python312-cpu"', "names.cpu", 'a name with "python313"'),
    ('"cudaPackages_13"', '"cudaPackages_12_8"', "cuda.package_set", "cudaPackages_13_0"),
    ('retired = ["fe5', f'retired = ["{EARLY}", "fe5', "cuda13_0.nixpkgs.pin", "any pin whose"),
    ('"cudaPackages_13"', '"cudaPackages_13"\ndriver = "525.60.13"', "driver", "580.65.06 or new"),
    ("allowUnfree", "allowUnfre-e", "nixpkgs.config[0]", "a Nix identifier"),
    ('"2.8.0", source', '"2.7.0", source', "torch.version", '"2.8.0", the torch of pin.autumn_20'),
    ('"2.8.0", source', '"2.8.0", owner = "x", source', "torch.source", 'allowed: "github" with'),
    ('owner = "pytorch"\nrepo = "pytorch"\n', 'owner = "a"\n', "cuda13_0.torch.repo", "a value, a"),
    ('"v2.10.0"\nhash', '"v2.9.1"\nhash', "torch.rev", 'allowed: "v2.10.0", the tag of torch.vers'),
    ("6fc0ad22f0a07b6f38d138861c56a765d5a9bb02", "v2.10.0", "nightly.torch.rev", "40 hex digits"),
    ("dev20251015", "dev20260721", "release.nightly.torch.version", "a day up to 20260720"),
    ('rev = "v0.25.0"', "", "companion.torchvision.rev", "a value, as the source is GitHub"),
    ('repo = "vision"', 'repo = "vision"\nunknown = 1', "torchvision.unknown", "unknown key"),
    ('rev = "v0.25.0"', 'rev = "v0.24.1"', "torchvision.rev", "the tag of torchvision.version"),
    ('repo = "vision"', 'source = "nixpkgs"', "torchvision.source", "with owner and rev and hash"),
    (
        'companion = { torchvision = "none"',
        'companion = { torchvision = { version = "1.0", source = "nixpkgs" }',
        "nightly.companion.torchvision.source",
        "for its torch 2.9.1, not for 2.10.0.dev",
    ),
    ('["armv8_2", "armv9"]', '["apple"]', "group[1].cpu[0]", "ISAs for Linux; apple has Metal"),
    (ARM, f'{ARM}blas = "mkl"\n', "group[1].blas", '"openblas" on aarch64-linux: MKL is for x86'),
    ("", "[cpu.avx512bf16]\nlevel = 4", "cpu.avx512bf16.level", "another level than avx512vnni"),
    ("job_memory = 5 ", "job_memory = 0.9 ", "job_memory", "found 0.9; allowed: 1 or more for"),
    ("", f"{RULE}when = {{}}\n{RULE}when = {{}}", "rule[1].id", 'found "x"; allowed: each id once'),
    # of facts that are known
    (EARLY, EARLY[::-1], "pin.early_2026.facts.of", "`invoke prefetch --only nixpkgs`"),
    ("", f'[pin.x]\nrev = "{"1" * 40}"\n{PIN}', "pin.x.facts", "missing, so what it contains"),
    ("", '[cpu.avx512]\ncpuinfo = ["avx512f"]', "cpuinfo", "also fma, avx512dq, avx512vl"),
    ("", '[cpu.avx2]\ncpuinfo = ["avx2", "f16c"]', "cpuinfo", "also fma: its flags need them"),
    ("", '[cpu.armv9]\ncpuinfo = ["sve"]', "cpu.armv9.cpuinfo", "also sve2: its flags"),
    ("", '[cpu.avx512]\nflags = ["-mavx512bf16"]', "cpu.avx512.cpuinfo", "also avx512_bf16: its"),
    ("", '[gpu.sm120]\nfirst_cuda = "12.0"', "first_cuda", 'found "12.0"; allowed: 12.8, the fir'),
    ("", '[gpu.sm90]\nfirst_cuda = "12.0"', "first_cuda", 'found "12.0"; allowed: 11.8, the fir'),
    ("", '[gpu.sm120]\ndriver = "525.60"', "driver", 'found "525.60"; allowed: 570.26 or newer'),
    (OF_TORCH, f"sha256-{'A' * 43}=", "cuda13_0.torch.hash", "found a fake hash"),
    (OF_VISION, OF_TORCH, "torchvision.hash", "the hash of pytorch v2.10.0"),
    # names and files that two share
    (CPU_ONLY, f'{CPU_ONLY}\nfolder = ".flox/pkgs/arm"', "group[2].folder", "the folder .flox/pk"),
    ('folder = ".flox/pkgs"', 'folder = "docs"', "release.cuda13_0.folder", "a folder of recipes"),
    ('folder = ".flox/pkgs"', 'folder = "a/b.nix"', "release.cuda13_0.folder", "of recipes"),
    ('folder = ".flox/pkgs"', 'folder = "a/b.py"', "release.cuda13_0.folder", "of recipes"),
    ('folder = ".flox/pkgs"', 'folder = "a/b.md"', "release.cuda13_0.folder", "of recipes"),
    ('folder = ".flox/pkgs"', 'folder = ".git/hooks"', "release.cuda13_0.folder", "of recipes"),
    ('folder = ".flox/pkgs"', 'folder = "matrix.toml"', "release.cuda13_0.folder", "of recipes"),
    ("build-notes-2.10-cuda13.md", "../a.md", "cuda13_0.notes", "a Markdown file below docs/"),
    ("explanation/build-notes-2.10-cuda13", "reference/releases", "notes", "not in docs/reference"),
    ('keep", file', 'delete", file', "cleanup[5].file", "a file that no variant needs"),
    ('delete", file', 'keep", file', "cleanup[0].file", "of a variant"),
]  # fmt: skip
"""Old and new text ("": a table at the end), the place that is named, and what is said."""


@pytest.mark.parametrize(("old", "new", "place", "says"), MISTAKES)
def test_each_mistake_is_one_line_with_place_found_and_allowed(
    old: str, new: str, place: str, says: str
) -> None:
    message = error_of((old, new))
    found = re.fullmatch(r"matrix\.toml:(\d+): (\S+): ((?s:.+))", message)
    assert found, message
    assert int(found[1]) <= WHOLE.count("\n") + 12
    assert found[2].endswith(place)
    assert re.match(r"(publisher|pin|rule\[\d\]|gpu|cpu|release)(\.|$)", found[2])
    assert re.fullmatch(r"\w+(\.[\w-]+|\[\d+\])*", found[2])
    assert says in found[3]
    assert ("add its table" in says) == ("add its table" in found[3])


@pytest.mark.parametrize(
    ("edit", "places"),
    [
        (
            ('version = "2.10.0"\nowner', 'version = "2.11.0"\nowner'),
            ['rev: found "v2.10.0"; allo'],
        ),
        (
            ("", '[gpu.sm120]\nfirst_cuda = "13.1"'),
            ["[0].gpu[0]: ", "[0].gpu[0]: ", "[2].gpu[0]: ", "gpu.sm120.first_cuda: "],
        ),
    ],
)
def test_a_value_that_contradicts_several_others_is_one_line_for_each(
    edit: tuple[str, str], places: list[str]
) -> None:
    for line, place in zip(refusal(edited(edit)), places, strict=True):
        assert place in line


def test_gpus_need_a_cuda() -> None:
    text = re.sub(r"\[release\.cuda13_0\.cuda\]\n(.+\n)+", "", ONE)
    lines = refusal(text.replace("{python}-cuda{cuda}", "{python}"))
    assert len(lines) == 9 + 2
    assert 'group[0].gpu[0]: found "sm120"; allowed: none in a release without a CUDA' in lines[0]


def test_a_version_that_moved_with_the_old_hash_is_an_error() -> None:
    before, mark, after = OLDER.partition("[release.cuda13_0.torch]")
    torch, end, rest = after.partition("\n\n")
    text = before + mark + torch.replace("2.10.0", "2.10.1") + end + rest
    assert "the hash of pytorch v2.10.0" in "".join(refusal(text))


def test_an_inherited_mistake_is_reported_where_it_is_written() -> None:
    line, message = header_of("max_jobs = 32"), error_of(("max_jobs = 32", "max_jobs = 0"))
    assert message.startswith(f"matrix.toml:{line}: release.cuda13_0.build.max_jobs: found 0")


def test_all_mistakes_are_reported_at_once_in_the_order_of_their_lines() -> None:
    edits = [
        ("max_jobs = 32", "max_jobs = 0"),
        ('owner = "pytorch"', 'ownr = "pytorch"'),
        (CPU_ONLY, f'{CPU_ONLY}\nblas = "mlk"'),
        ("", "[gpu.sm90]\nfamily = 1\n[gpu.sm80]\nfirst_cuda = 11"),
    ]
    lines = refusal(edited(*edits, text=ONE))
    assert [line.split(": ")[1] for line in lines] == [
        "release.cuda13_0.torch.ownr",
        "release.cuda13_0.build.max_jobs",
        "release.cuda13_0.group[2].blas",
        "gpu.sm90.family",
        "gpu.sm80.first_cuda",
    ]
    numbers = [int(line.split(":")[1]) for line in lines]
    assert numbers == sorted(numbers)
    assert numbers[0] == header_of('owner = "pytorch"', ONE)


def test_a_message_has_at_most_twenty_errors_and_the_number_of_the_others() -> None:
    lines = refusal(WHOLE + "".join(f"\n[gpu.x{n}]" for n in range(30)))
    assert len(lines) == 21
    assert lines[-1] == "and 100 more errors"


@pytest.mark.parametrize("value", ["nan", "-1.0", "true", '"60"', "[60]", "9" * 400])
def test_what_is_no_size_is_refused(value: str) -> None:
    message = error_of(("disk = 60", f"disk = {value}"))
    place = f"matrix.toml:{header_of('disk = 60')}: release.cuda13_0.build.disk: found "
    assert message.startswith(place)
    assert message.endswith("allowed: a size in GiB")


def test_a_long_value_is_shortened() -> None:
    def of(digits: int) -> str:
        return error_of(("", f'[gpu.sm120]\nfirst_cuda = "{"5" * digits}"'))

    assert f'found "{"5" * 76}...; allowed: a CUDA version' in of(500)
    assert "found 5000 characters; allowed: at most 1000 characters" in of(5000)
    message = error_of(('folder = ".flox/pkgs"', f'folder = "{"x" * 300}/.flox/pkgs"'))
    assert message.endswith("folder: found 311 characters; allowed: at most 200 characters")


def test_a_list_of_allowed_names_is_shortened() -> None:
    gpus = "".join(f"[gpu.sm{n}]\n{OWN_GPU}" for n in range(130, 990))
    gpus = re.sub(r'(sm(\d+)(\d)\]\ncapability = )"13.0"', r'\1"\2.\3"\nfirst_cuda = "11.0"', gpus)
    message = error_of(('gpu = ["sm110", "sm121"]', 'gpu = ["none"]'), ("", gpus))
    assert re.search(r"and 8\d\d more", message)
    assert len(message) < 400


def test_lists_that_multiply_to_millions_of_variants_are_refused_at_once() -> None:
    many = ", ".join(['"sm110"'] * 10_000)
    first, *_ = refusal(edited(('gpu = ["sm110", "sm121"]', f"gpu = [{many}]"), text=ONE))
    assert "release: found 20040 variants; allowed: 10000 at most" in first


def test_any_type_can_be_explained() -> None:
    kind = msgspec.defstruct("Counts", [("counts", tuple[int, ...] | None)])
    documents: tuple[Any, ...] = ({"counts": [1, "2"]}, {"counts": 3}, [])
    found = [fault for document in documents for fault in misfits(document, kind)]
    assert [(dotted(trail), what) for trail, what in found] == [
        ("counts[1]", 'found "2"; allowed: integer'),
        ("counts", "found 3; allowed: a list"),
        ("top level", "found []; allowed: a table of keys"),
    ]


# --- what is no TOML, and lines ---


def values(node: Any, trail: Trail = ()) -> Iterator[Trail]:
    """The path of every value in a document."""
    yield trail
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from values(value, (*trail, key))


@pytest.mark.parametrize("text", [WHOLE, (PROJECT / "examples/all-lines/matrix.toml").read_text()])
def test_each_value_is_found_on_the_line_of_its_table(text: str) -> None:
    lines = text.split("\n")
    for trail in values(tomllib.loads(text)):
        keys = [step for step in trail if isinstance(step, str)]
        if keys[1:]:
            header = lines[line_of(text, trail) - 1].strip("[]").split(".")
            assert header == keys[: len(header)]


def test_a_missing_value_is_on_the_line_of_its_table() -> None:
    text = "top = 1\n[a.b]\nx.y = 1\n[[list]]\n[[list]]\n  z = 1\n[c]\nlist = [{}]\n"
    places: dict[Trail, int] = {("a", "b", "new"): 2, ("a", "b", "x", "y"): 2, ("list", 1, "z"): 5}
    places |= {("list", 0, "z"): 4, ("none",): 1, ("c", "list", 0, "q"): 7, ("top",): 1}
    assert {place: line_of(text, place) for place in places} == places
    with pytest.raises(MatrixError, match=r"matrix\.toml:1: pin: missing; add it"):
        matrix_reader.parse("publisher = 'a'")


LAST = -1  #: the line after the last one


@pytest.mark.parametrize(
    ("new", "line", "says"),
    [
        ('owner = "pytorch', 0, ""),
        ("owner = 'pytorch", 0, ""),
        ('owner = """pytorch', LAST, ""),
        ("owner = pytorch", 0, "Invalid value"),
        ("owner", 0, "Expected '='"),
        ('= "pytorch"', 0, "Invalid statement"),
        ('owner = "a\\q"', 0, "Unescaped '\\' in a str"),
        ('owner = "a\x1b"', 0, "Illegal character '\\x1b'"),
        ('owner = "a" repo = "b"', 0, "Expected newline or"),
        ("[release.cuda13_x", 0, "Expected ']' at"),
        ('owner = "x"; owner = "y"', 0, "Expected newline or"),
        ('version = "2"', 0, "Cannot overwrite a value"),
        ("[release.cuda13_0.torch]", 0, "Cannot declare"),
        ("owner = {a = 1, a = 2}", 0, "Duplicate inline table key"),
        ("owner = [1,", 1, ""),
    ],
)
def test_broken_toml_is_one_line_with_what_to_do(new: str, line: int, says: str) -> None:
    message = error_of(('owner = "pytorch"', new))
    first = OLDER[: OLDER.index('owner = "pytorch"')].count("\n") + 1
    number = OLDER.count("\n") + 1 if line == LAST else first + line
    assert message.startswith(f"matrix.toml:{number}: not valid TOML: ")
    assert says in message
    assert message.endswith("; allowed: [TABLE], and each KEY = VALUE once, with texts in quotes")


def test_a_file_that_cannot_be_read_is_one_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    path.mkdir()
    with pytest.raises(MatrixError, match="cannot be read: Is a directory; put its text into"):
        matrix_reader.load(tmp_path)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(MatrixError, match="cannot be read: not a regular file; put its text"):
        matrix_reader.load(tmp_path)


def test_text_that_is_not_utf8_is_named_by_its_line() -> None:
    data = WHOLE.encode() + b"# \xe9\n"
    with pytest.raises(MatrixError) as caught:
        matrix_reader.decode(data)
    line = f"matrix.toml:{WHOLE.count(chr(10)) + 1}: "
    assert str(caught.value) == f"{line}byte 0xe9 is not UTF-8; save the file as UTF-8"


# --- hostile values ---

HOSTILE = ("${builtins.abort}", "''", '"; rm -rf /; "', "../../etc", "a b;c", "`id`")
INVISIBLE = ("a\nb", "a\0", "a\u202eb", "a\u2028b", "a\rb", "a\n")


def patterns(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The key and the pattern of each text in a schema that has no list of values."""
    if isinstance(node, dict):
        if node.get("type") == "string" and "enum" not in node:
            yield key, node["pattern"]
        for name, value in node.items():
            parts = value.items() if name == "properties" else [(key, value)]
            for part, inner in parts:
                yield from patterns(inner, part)
    elif isinstance(node, list):
        for value in node:
            yield from patterns(value, key)


def test_only_texts_for_people_take_what_is_code_elsewhere() -> None:
    found = list(patterns(msgspec.json.schema(MatrixFile)))
    for_people = {key for key, pattern in found if any(re.search(pattern, it) for it in HOSTILE)}
    assert for_people == {
        *("title", "purpose", "support", "reason", "unconfirmed", "evidence", "same_as"),
        *("source", "date", "family", "hosts", "cpus", "lacking", "broken"),
    }
    assert not [key for key, pattern in found if any(re.search(pattern, it) for it in INVISIBLE)]
    options = {key for key, pattern in found if re.search(pattern, "-rf")}
    assert options - for_people == {"suffix", "environment"}
    assert "one line of text" in error_of(("", '[cpu.avx2]\ntitle = "a\\u202eb"'))


# --- the schema and the reference ---


@pytest.mark.parametrize(
    "path", ["matrix.toml", "examples/all-lines/matrix.toml", "tests/second-release.toml"]
)
def test_the_schema_is_valid_and_takes_what_the_reader_takes(path: str) -> None:
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    text = (PROJECT / path).read_text()
    assert list(validator(schema).iter_errors(tomllib.loads(text))) == []
    for wrong in (
        text.replace("{torch}", "{trch}"),
        f'{text}\n[gpu.sm121]\ncapabilty = "12.1"',
        text.replace("companion.torchvision", "companion.tochvision"),
    ):
        assert wrong == text or list(validator(schema).iter_errors(tomllib.loads(wrong)))


def test_the_first_line_points_editors_at_the_schema() -> None:
    first = WHOLE.partition("\n")[0]
    assert first == "#:schema build_pytorch/matrix/matrix.schema.json"
    assert (PROJECT / first.removeprefix("#:schema ")).is_file()


def test_a_builder_feature_that_recipes_require_is_there() -> None:
    own = '[cpu.own]\nplatform = "x86_64-linux"\nlevel = 9\nflags = ["-mavx"]\n'
    own += 'cpuinfo = ["avx", "x"]\n'
    text = WHOLE.replace("max_jobs = 32", "max_jobs = 32\nrequire_builder_feature = true")
    text = text.replace('"avx2", "avx512",', '"own", "avx512",', 1)
    assert 'found "own"; allowed: ISAs with a builder_feature' in error_of(("", own), text=text)


def test_every_key_is_in_the_reference_with_its_meaning() -> None:
    page = (PROJECT / "docs/reference/matrix.md").read_text()
    assert page == matrix_reference.page(PROJECT)
    definitions = json.loads(SCHEMA.read_text())["$defs"]
    for name in definitions.keys() - {"PinFacts", "CudaSetFacts"}:
        for key, value in definitions[name]["properties"].items():
            if key == "facts":  # programs write it
                continue
            is_table = "#/$defs/" in json.dumps(value)
            assert is_table or not value["description"].startswith(";"), "a key has a meaning"
            place = rf"(?m)^## .*[.\[]{key}\b" if is_table else rf"(?m)^- \**`{key}`\**: \S"
            assert re.search(place, page), (name, key)
    known = {*re.findall(r"`(\w+)`", page.rpartition("## Known names")[2])}
    assert known >= {"sm121", "sm35", "avx", "apple"}, "the names that need no table"
