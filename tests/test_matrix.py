"""matrix.toml: its variants, its rules, and the messages about wrong values."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from conftest import ONE, PROJECT, WHOLE
from one_release import written_out

from build_pytorch.base.errors import MatrixError
from build_pytorch.generate import matrix_reference
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.field_types import Trail, dotted, misfits
from build_pytorch.matrix.hashed_sources import FAKE
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.toml_lines import line_of

TEXT = written_out(ONE)
TORCH = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ="
SCHEMA = PROJECT / "build_pytorch/matrix/matrix.schema.json"


def errors_of(*edits: tuple[str, str]) -> list[str]:
    """The lines of the reader's message after edits of matrix.toml."""
    text = TEXT
    for old, new in edits:
        assert old in text, f"{old!r} is not in matrix.toml"
        text = text.replace(old, new, 1)
    with pytest.raises(MatrixError) as caught:
        matrix_reader.parse(text)
    return str(caught.value).split("\n")


def error_of(old: str, new: str) -> str:
    """The message after one edit of matrix.toml, which must be one line."""
    (line,) = errors_of((old, new))
    return line


def line_with(fragment: str) -> int:
    return TEXT[: TEXT.index(fragment)].count("\n") + 1


def test_a_group_may_have_a_folder() -> None:
    own = 'cpu = ["armv8_2", "armv9"]\nfolder = "arm/{release}/.flox/pkgs"'
    text = TEXT.replace("sm110-armv8_2.nix", "sm90-avx2.nix")  # of the clean-up list
    text = text.replace("sm110-armv9.nix", "sm90-avx512.nix")
    found = matrix_reader.parse(text.replace('cpu = ["armv8_2", "armv9"]', own, 1))
    moved = [package for package in found.packages if package.platform == "aarch64-linux"]
    assert (
        {package.folder for package in moved}
        == {
            "arm/cuda13_0/.flox/pkgs",
            "arm/cuda13_0/companions/.flox/pkgs",
        }
        <= set(found.folders)
    )


def test_the_matrix_makes_44_variants_in_the_order_of_its_groups(matrix: Matrix) -> None:
    ids = [variant.id for variant in matrix.variants]
    assert len(ids) == len(set(ids)) == 44
    assert ids[:5] == [
        "sm120-avx2",
        "sm120-avx512",
        "sm120-avx512bf16",
        "sm120-avx512vnni",
        "sm121-avx2",
    ]
    assert ids[36:] == [
        "sm110-armv8_2",
        "sm110-armv9",
        "sm121-armv8_2",
        "sm121-armv9",
        "cpu-avx2",
        "cpu-avx512",
        "cpu-avx512bf16",
        "cpu-avx512vnni",
    ]
    assert [sum(v.phase.number == n for v in matrix.variants) for n in (2, 3, 4)] == [36, 4, 4]


def test_names_follow_the_release(matrix: Matrix) -> None:
    by_id = {variant.id: variant for variant in matrix.variants}
    gpu, cpu = by_id["sm120-avx512"], by_id["cpu-avx2"]
    assert gpu.path == ".flox/pkgs/pytorch-python313-cuda13_0-sm120-avx512.nix"
    assert gpu.pname == "pytorch210-python313-cuda13_0-sm120-avx512"
    assert cpu.path == ".flox/pkgs/pytorch-python313-cpu-avx2.nix"
    assert cpu.pname == "pytorch210-python313-cpu-avx2"


def test_impossible_host_is_derived_from_the_hosts_that_exist(matrix: Matrix) -> None:
    impossible = {v.id: v.impossible for v in matrix.variants if v.status == "impossible-host"}
    isas = ("avx2", "avx512", "avx512bf16", "avx512vnni")
    assert set(impossible) == {f"{gpu}-{isa}" for gpu in ("sm110", "sm121") for isa in isas}
    assert impossible["sm121-avx2"] == (
        "no x86_64-linux machine has SM121: GB10 (DGX Spark) on aarch64-linux only"
    )
    moved = TEXT.replace('hosts.aarch64-linux = ["GB10', 'hosts.x86_64-linux = ["GB10', 1)
    statuses = {v.id: v.status for v in matrix_reader.parse(moved).variants}
    assert statuses["sm121-avx2"] == "buildable"
    assert statuses["sm121-armv9"] == "impossible-host"


@pytest.mark.parametrize(
    ("old", "new", "where", "says"),
    [
        # misspelled, missing and mistyped
        (
            'capability = "12.1"',
            'capabilty = "12.1"',
            "gpu.sm121.capabilty",
            'did you mean "capability"?',
        ),
        ('capability = "12.1"', "capability = 12.1", "gpu.sm121.capability", "found 12.1"),
        ("submodules = true", "submodules = 1", "torch.submodules", "true or false"),
        (
            "[release.cuda13_0.torch]",
            "[release.cuda13_0.trch]",
            "release.cuda13_0.trch",
            '"torch"?',
        ),
        ('kind = "cpu-only"', 'kind = "cpuonly"', "group[2].kind", 'did you mean "cpu-only"?'),
        ("max_jobs = 32", "max_jobs = 0", "build.max_jobs", "from 1 to 1024"),
        ("max_jobs = 32", "max_jobs = 32.0", "build.max_jobs", "found 32.0; allowed: a number"),
        ("hosts.x86_64-linux = [", "hosts.x86-64-linux = [", "x86-64-linux", '"x86_64-linux"?'),
        ('cpu = ["armv8_2", "armv9"]', "cpu = []", "group[1].cpu", "found []"),
        (
            'kind = "cpu-only"',
            'kind = "cpu-only"\nfolder = ".flox/pkgs/arm"',
            "group[2].folder",
            "in the folder of release.cuda13_0",
        ),
        # values of the wrong form
        ('capability = "12.1"', 'capability = "sm_121"', "gpu.sm121.capability", "never sm_120"),
        ('capability = "12.1"', 'capability = "121"', "gpu.sm121.capability", 'found "121"'),
        ('rev = "v2.10.0"', 'rev = "main"', "torch.rev", "never a branch"),
        ('rev = "6a030d5', 'rev = "6a030d', "pin.early_2026.rev", "40 hex digits"),
        ('hash = "sha256-RKi', 'hash = "sha256-RK', "torch.hash", "an SRI hash"),
        ('hash = "sha256-RKi', 'hash = "sha512-RKi', "torch.hash", "an SRI hash"),
        (f'hash = "{TORCH}"', f'hash = "{FAKE}"', "torch.hash", "found a fake hash"),
        ("[cpu.armv8_2]", '[cpu."armv8.2"]', 'cpu."armv8.2"', "a dot breaks Flox"),
        ('gpu = "python313-cuda13_0"', 'gpu = "python313-cuda13.0"', "names.gpu", "a dot breaks"),
        # values that contradict each other
        ('"sm120", "sm121"', '"sm120", "sm212"', "group[0].gpu[1]", 'did you mean "sm121"?'),
        ('"sm110", "sm121"]', '"sm110", "sm110"]', "group[1]", "sm110-armv8_2 twice"),
        ('["armv8_2", "armv9"]', '["armv8_2", "avx2"]', "group[1].cpu[1]", "for x86_64-linux"),
        ('capability = "12.1"', 'capability = "12.0"', "gpu.sm121.capability", "the same digits"),
        ('first_cuda = "11.0"', 'first_cuda = "13.1"', "group[0].gpu[8]", "CUDA 13.1 or newer"),
        (
            'first_cuda = "11.0"',
            'first_cuda = "11.0"\nlast_cuda = "12.9"',
            "group[0].gpu[8]",
            "CUDA 11.0 to 12.9",
        ),
        ('pname = "pytorch210"', 'pname = "pytorch29"', "names.pname", '"210"'),
        ('gpu = "python313-cuda13_0"', 'gpu = "python313-cuda12_8"', "names.gpu", "cuda13_0"),
        ('"cudaPackages_13"', '"cudaPackages_12_8"', "cuda.package_set", "cudaPackages_13_0"),
        (
            'retired = ["fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3"]',
            'retired = ["6a030d535719c5190187c4cec156f335e95e3211"]',
            "nixpkgs.pin",
            "retired",
        ),
        ('driver = "580.65.06"', 'driver = "525.60.13"', "cuda.driver", "580 or newer"),
        ('folder = ".flox/pkgs"', 'folder = "docs"', "release.cuda13_0.folder", "recipes"),
        ('action = "keep"', 'action = "delete"', "cleanup[5].file", "the recipe of a variant"),
        (
            'sm120-avx.nix"\naction = "delete"',
            'sm120-avx.nix"\naction = "keep"',
            "cleanup[1]",
            "no v",
        ),
        ('kind = "cpu-only"', 'kind = "cpu-only"\ngpu = ["sm90"]', "group[2].gpu", "no gpu at all"),
        ('gpu = ["sm110", "sm121"]', "", "group[1]", "without gpu"),
        ("level = 3", "level = 0", "cpu.avx512.level", "from 1 to 99"),
        (
            'codegen_base = "12.0"',
            'codegen_base = "10.0"',
            "gpu.sm121.codegen_base",
            "major version",
        ),
        (
            'builder_feature = "gccarch-armv9-a"',
            'builder_feature = "gccarch armv9"',
            "builder_feature",
            "a system feature such as",
        ),
        ("level = 5", "level = 4", "cpu.avx512bf16.level", "the level of avx512vnni"),
        ('folder = ".flox/pkgs"', 'folder = ".git/hooks"', "release.cuda13_0.folder", "recipes"),
        ('folder = ".flox/pkgs"', 'folder = "matrix.toml"', "release.cuda13_0.folder", "recipes"),
        (
            'notes = "docs/explanation/build-notes-2.10-cuda13.md"',
            'notes = "docs/reference/releases.md"',
            "cuda13_0.notes",
            "generated as a whole",
        ),
    ],
)
def test_each_mistake_is_one_line_with_place_found_and_allowed(
    old: str, new: str, where: str, says: str
) -> None:
    message = error_of(old, new)
    assert message.startswith("matrix.toml:")
    assert where in message
    assert says in message


@pytest.mark.parametrize(
    ("old", "new", "places"),
    [
        (
            'version = "2.10.0"',
            'version = "2.11.0"',
            ['torch.rev: found "v2.10.0"; allowed: "v2.11.0"', "names.pname: found"],
        ),
        ('version = "3.13"', 'version = "3.12"', ["names.gpu: found", "names.cpu: found"]),
        (
            "level = 3",
            "level = 6",
            [
                "cpu.avx512vnni.level: found 4; allowed: more than 6, the level of avx512",
                "cpu.avx512bf16.level: found 5; allowed: more than 6, the level of avx512",
            ],
        ),
        ('first_cuda = "12.8"', 'first_cuda = "13.1"', ['group[0].gpu[0]: found "sm120"']),
    ],
)
def test_a_value_that_contradicts_several_others_is_one_line_for_each(
    old: str, new: str, places: list[str]
) -> None:
    lines = errors_of((old, new))
    assert len(lines) == len(places)
    for line, place in zip(lines, places, strict=True):
        assert place in line


def test_all_mistakes_are_reported_at_once_in_the_order_of_their_lines() -> None:
    lines = errors_of(
        ('first_cuda = "11.0"', "first_cuda = 11"),
        ("max_jobs = 32", "max_jobs = 0"),
        ('family = "Hopper"', "family = 1"),
        ('owner = "pytorch"', 'ownr = "pytorch"'),
        ('kind = "cpu-only"', 'kind = "cpuonly"'),
    )
    assert [line.split(": ")[1] for line in lines] == [
        "release.cuda13_0.torch.ownr",
        "release.cuda13_0.build.max_jobs",
        "release.cuda13_0.group[2].kind",
        "gpu.sm90.family",
        "gpu.sm80.first_cuda",
    ]
    numbers = [int(line.split(":")[1]) for line in lines]
    assert numbers == sorted(numbers)


def test_a_message_has_at_most_twenty_errors_and_the_number_of_the_others() -> None:
    lines = errors_of(
        ("\n[cpu.avx2]", "".join(f"\n[gpu.sm{n}]" for n in range(30)) + "\n[cpu.avx2]")
    )
    assert len(lines) == 21
    assert lines[-1] == "and 100 more errors"


def test_a_folder_that_no_file_system_takes_is_refused() -> None:
    message = error_of('folder = ".flox/pkgs"', f'folder = "{"x" * 300}/.flox/pkgs"')
    found = "found 311 characters; allowed: at most 200 characters"
    assert message.endswith(f"release.cuda13_0.folder: {found}")


@pytest.mark.parametrize("value", ["nan", "-1.0", "true", '"60"', "[60]", "9" * 400])
def test_what_is_no_size_is_refused_with_its_line(value: str) -> None:
    message = error_of("disk = 60", f"disk = {value}")
    assert message.startswith(
        f"matrix.toml:{line_with('disk = 60')}: release.cuda13_0.build.disk: "
    )
    assert message.endswith("allowed: a size in GiB")


def test_a_long_value_is_shortened() -> None:
    message = error_of('driver = "580.65.06"', f'driver = "{"5" * 500}"')
    assert f'found "{"5" * 76}...; allowed: a driver version' in message
    message = error_of('driver = "580.65.06"', f'driver = "{"5" * 5000}"')
    assert "found 5000 characters; allowed: at most 1000 characters" in message


class Part(msgspec.Struct, forbid_unknown_fields=True):
    count: int
    sizes: tuple[int, ...] | None = None


class Whole(msgspec.Struct):
    parts: tuple[Part, ...]


def test_any_type_can_be_explained() -> None:
    raw = {"parts": [{"count": 1, "sizes": [1, "2"]}, {"cout": 1}, {"count": None}]}
    assert [(dotted(trail), text) for trail, text in misfits(raw, Whole)] == [
        ("parts[0].sizes[1]", 'found "2"; allowed: integer'),
        ("parts[1].cout", 'unknown key; allowed: count, sizes; did you mean "count"?'),
        ("parts[2].count", "found null; allowed: integer"),
    ]


# --- the lines of values ---


def values(node: Any, trail: Trail = ()) -> Iterator[Trail]:
    """The path of every value in a document."""
    yield trail
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from values(value, (*trail, key))


@pytest.mark.parametrize("text", [WHOLE, (PROJECT / "examples/newest/matrix.toml").read_text()])
def test_each_value_is_found_on_the_line_of_its_key_or_of_its_table(text: str) -> None:
    lines = text.split("\n")
    for trail in values(tomllib.loads(text)):
        keys = [step for step in trail if isinstance(step, str)]
        if keys[1:]:
            line = lines[line_of(text, trail) - 1]
            assert any(key in line for key in keys), (trail, line)


def test_an_empty_file_lacks_its_tables() -> None:
    with pytest.raises(MatrixError, match=r"matrix\.toml:1: pin: missing; add it"):
        matrix_reader.parse("")


def test_a_missing_value_is_on_the_line_of_its_table() -> None:
    text = "top = 1\n[a.b]\nx.y = 1\n[[list]]\n[[list]]\n  z = 1\n[c]\nlist = [{}]\n"
    places: dict[Trail, int] = {("a", "b", "new"): 2, ("a", "b", "x", "y"): 3, ("list", 1, "z"): 6}
    places |= {("list", 0, "z"): 4, ("none",): 1, ("c", "list", 0, "q"): 8, ("top",): 1}
    assert {place: line_of(text, place) for place in places} == places


def test_missing_cpu_flags_are_in_the_order_of_the_matrix(matrix: Matrix) -> None:
    avx512 = matrix.cpus["avx512"]
    assert missing_cpu_flags(avx512, ("fma", "avx512f", "avx2")) == (
        "avx512dq",
        "avx512vl",
        "avx512bw",
    )
    assert missing_cpu_flags(avx512, avx512.cpuinfo) == ()


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ('owner = "pytorch', "the text is not closed; add"),
        ("owner = 'pytorch", "the text is not closed; add"),
        ("owner = pytorch", "found no value; put a text into"),
        ("owner", "allowed: KEY = VALUE, [TABLE]"),
        ('= "pytorch"', "allowed: KEY = VALUE, [TABLE]"),
        ('owner = "a\\q"', "Unescaped '\\' in a str"),
        ('owner = "a\x1b"', "Illegal character '\\x1b'"),
        ('owner = "a" repo = "b"', "Expected newline or"),
        ("[release.cuda13_x", "Expected ']' at"),
        ('owner = "x"; owner = "y"', "Expected newline or"),
        ('version = "2"', "set twice; keep one of them"),
    ],
)
def test_broken_toml_is_one_line_with_what_to_do(new: str, says: str) -> None:
    message = error_of('owner = "pytorch"', new)
    assert message.startswith(f"matrix.toml:{line_with('owner = ')}: not valid TOML: ")
    assert says in message


def test_lists_that_multiply_to_millions_of_variants_are_refused_at_once() -> None:
    many = ", ".join(['"sm110"'] * 10_000)
    assert (
        "release: found 20040 variants; allowed: 10000 at most"
        in errors_of(('gpu = ["sm110", "sm121"]', f"gpu = [{many}]"))[0]
    )


def test_a_list_of_allowed_names_is_shortened() -> None:
    gpus = "".join(
        f'[gpu.sm{n}]\ncapability = "{n // 10}.{n % 10}"\nfamily = "x"\nfirst_cuda = "11.0"\n'
        'hosts.x86_64-linux = ["x"]\n'
        for n in range(130, 990)
    )
    broken = ('gpu = ["sm110", "sm121"]', 'gpu = ["none"]')
    (message,) = errors_of(broken, ("\n[cpu.avx2]", f"\n{gpus}\n[cpu.avx2]"))
    assert "and 860 more" in message
    assert len(message) < 400


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
    with pytest.raises(MatrixError) as caught:
        matrix_reader.decode(TEXT.replace("Haswell and", "Haswell \xe9", 1).encode("latin-1"))
    line = f"matrix.toml:{line_with('Haswell and')}: "
    assert str(caught.value) == f"{line}byte 0xe9 is not UTF-8; save the file as UTF-8"


HOSTILE = [
    "${builtins.abort}",
    "''",
    '\\"; rm -rf /; \\"',
    "a\\nb",
    "../../etc",
    "-rf",
    "a b;c",
    "`id`",
]


FIELDS = [
    'version = "2.10.0"',
    'owner = "pytorch"',
    'rev = "v2.10.0"',
    'package_set = "cudaPackages_13"',
    'driver = "580.65.06"',
    'name = "cuda-13.0-clockrate-fix.patch"',
    'pname = "pytorch210"',
    'folder = ".flox/pkgs"',
    'file = "pytorch-python313-cuda13_0-sm120-avx.nix"',
    'notes = "docs/explanation/build-notes-2.10-cuda13.md"',
    'system_features = ["big-parallel"]',
    'flags = ["-march=armv9-a+sve2"]',
    'capability = "12.1"',
    'config = ["allowUnfree"]',
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_refused_where_code_or_paths_are_made_of_them(value: str) -> None:
    edits = []
    for field in FIELDS:
        key, _, old = field.partition(" = ")
        edits.append(
            (field, f"{key} = " + (f'["{value}"]' if old.startswith("[") else f'"{value}"'))
        )
    places = [line.split(": ")[1] for line in errors_of(*edits)]
    keys = [re.sub(r"\[0\]$", "", place).rpartition(".")[2] for place in places]
    assert sorted(keys) == sorted(field.partition(" = ")[0] for field in FIELDS)


@pytest.mark.parametrize("value", ["a\\nb", "a\\u0000", "a\\u202eb", "", "a\\u2028b", "a\\rb"])
def test_text_for_comments_is_one_visible_line(value: str) -> None:
    assert "one line of text" in error_of('title = "AVX2"', f'title = "{value}"')


def test_the_schema_is_valid_takes_the_matrix_and_refuses_a_misspelled_key() -> None:
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    document = tomllib.loads(TEXT)
    assert list(validator(schema).iter_errors(document)) == []
    document["gpu"]["sm121"]["capabilty"] = "12.1"
    assert len(list(validator(schema).iter_errors(document))) == 1


@pytest.mark.parametrize("path", ["matrix.toml", "examples/all-lines/matrix.toml"])
def test_the_schema_takes_inherited_releases_and_placeholders(path: str) -> None:
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    text = (PROJECT / path).read_text()
    assert list(validator.iter_errors(tomllib.loads(text))) == []
    wrong = tomllib.loads(text.replace("{torch}", "{trch}"))
    assert list(validator.iter_errors(wrong)) != []


def test_the_first_line_points_editors_at_the_schema() -> None:
    first = TEXT.partition("\n")[0]
    assert first == "#:schema build_pytorch/matrix/matrix.schema.json"
    assert (PROJECT / first.removeprefix("#:schema ")).is_file()


# --- the reference ---


def test_the_schema_does_not_depend_on_the_optimisation_level() -> None:
    script = (
        "from build_pytorch.generate import matrix_reference;"
        "print(matrix_reference.schema(), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-OO", "-c", script],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == SCHEMA.read_text()


def test_a_builder_feature_that_recipes_require_is_there() -> None:
    own = '[cpu.own]\nplatform = "x86_64-linux"\nlevel = 9\nflags = ["-mavx"]\n'
    own += 'cpuinfo = ["avx", "x"]\n'
    text = TEXT.replace("max_jobs = 32", "max_jobs = 32\nrequire_builder_feature = true")
    text = text.replace('"avx2", "avx512",', '"own", "avx512",', 1) + own
    with pytest.raises(MatrixError, match='found "own", which has no builder_feature'):
        matrix_reader.parse(text)


def test_every_key_is_in_the_reference_with_its_meaning() -> None:
    page = (PROJECT / "docs/reference/matrix.md").read_text()
    assert page == matrix_reference.page(PROJECT)
    sections = re.findall(r"(?ms)^## (.*?)\n(.*?)(?=^## |\Z)", page)
    headers = [header for line, _ in sections for header in re.findall("`(.*?)`", line)]
    tables = {header.strip("[]").removesuffix(".NAME") for header in headers}
    described: dict[str, set[str]] = {}
    for line, section in sections:
        rows = re.findall(r"(?m)^- \**(`.*?`)\**(: .+)?(?: \(.*)?$", section)
        shown = {key for names, _ in rows for key in re.findall(r"`(\w+)`", names)}
        for header in re.findall("`(.*?)`", line):
            start = "" if header == "matrix.toml" else header.strip("[]") + "."
            below = {name.removeprefix(start) for name in tables if name.startswith(start)}
            described[header] = shown | {name for name in below if "." not in name}
            unexplained = {names.strip("`") for names, meaning in rows if not meaning}
            assert unexplained <= below, "each key has a meaning here or a table of its own"
    for header, keys in {
        "matrix.toml": "publisher repository pin patch rule release gpu cpu",
        "[release.NAME.nixpkgs]": "pin retired config",
        "[[rule]]": "id when effect reason source checked until unconfirmed",
        "[[release.NAME.group]]": "title kind platform gpu cpu folder blas",
        "[gpu.NAME]": "capability family hosts first_cuda last_cuda codegen_base driver"
        " source checked unconfirmed",
    }.items():
        assert described[header] == set(keys.split())
    documented = {key for keys in described.values() for key in keys}
    document = tomllib.loads(ONE)
    written = {step for trail in values(document) for step in trail if isinstance(step, str)}
    assert written - documented == {"cuda13_0", "early_2026"}
    known = {*re.findall(r"`(\w+)`", sections[-1][1])}
    assert known >= {"sm121", "sm35", "avx", "apple"}, "the names that need no table"
