"""The option --release of every command: a wrong name changes nothing, a right one limits it."""

from __future__ import annotations

import json

from conftest import WHOLE, Project

from build_pytorch.build.build_progress import named_package
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import option_specs
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select
from build_pytorch.sources.fetchers import sources

ALL = matrix_reader.parse(WHOLE)

WORDS = {
    "build": ["sm90-avx512"],
    "bump": ["--torch", "2.11.0"],
    "compare": ["sm90-avx512"],
    "diagnose": ["a.log"],
    "inspect": ["sm90-avx512"],
    "log": ["sm90-avx512"],
    "publish": ["sm90-avx512"],
    "show": ["sm90-avx512"],
}
"""What a command needs beside --release."""
WITHOUT = [
    *("phase5", "init", "describe-machine"),
]
"""Commands for which releases are all alike."""


def test_every_command_that_knows_variants_takes_a_release() -> None:
    without = [
        name
        for name, command in COMMANDS.items()
        if not any(spec.field == "release" for spec in option_specs(command.options))
    ]
    assert without == WITHOUT


def test_an_unknown_release_is_refused_before_anything_is_written(project: Project) -> None:
    (project.root / "a.log").write_text("one\n")
    before = project.snapshot()
    for name in COMMANDS.keys() - {*WITHOUT}:
        done = project.invoke(name, *WORDS.get(name, []), "--release", "cuda13_1")
        assert done.returncode == 2, done.stdout + done.stderr
        line = 'error: --release "cuda13_1": no such release; did you mean "cuda13_0"?\n'
        assert done.stderr == line
    assert project.snapshot() == before


def test_the_phases_write_the_recipes_of_one_release(whole: Project) -> None:
    ours, theirs = (
        [package.path for package in matrix.packages if package.release_name == name]
        for matrix in [matrix_reader.load(whole.root)]
        for name in ("cuda12_8", "cuda13_0")
    )
    for path in (ours[0], ours[-1], theirs[0], theirs[-1]):
        (whole.root / path).unlink()
    done = whole.invoke("all", "--release", "cuda12_8", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    written = [
        change["path"]
        for phase in report["phases"]
        for change in phase["changes"]
        if change["action"] == "create"
    ]
    assert set(written) == {ours[0], ours[-1]}
    assert not (whole.root / theirs[0]).exists()
    planned = {c["path"] for p in report["phases"][1:4] for c in p["changes"]}
    assert {path for path in planned if not path.startswith("nix/nixpkgs/cuda12_8-")} == set(ours)
    assert set(report["verification"]["variants"]) == {v.id for v in ALL.of_release("cuda12_8")}


def test_the_clean_up_of_one_release_leaves_the_folder_of_the_other_alone(whole: Project) -> None:
    matrix = matrix_reader.load(whole.root)
    stray = {}
    for name, release in matrix.releases.items():
        stray[name] = whole.root / release.folder / "stray.nix"
        stray[name].write_text("{ }\n")
    done = whole.invoke("phase1", "--release", "cuda12_8")
    assert stray["cuda12_8"].relative_to(whole.root).as_posix() in done.stdout
    assert f" {stray['cuda13_0'].relative_to(whole.root).as_posix()}" not in done.stdout


def test_the_sources_of_one_release() -> None:
    names = {name: sources(ALL, (), name) for name in ALL.releases}
    assert [s.name for s in names["cuda12_8"]] == ["nixpkgs"]
    assert [s.name for s in names["cuda13_0"]] == [
        *("torch", "torchvision", "torchaudio", "nixpkgs", "patch")
    ]
    for name, found in names.items():
        pins = [source.trail[1] for source in found if source.name == "nixpkgs"]
        assert pins == [ALL.releases[name].nixpkgs.pin]


def test_a_release_that_inherits_its_torch_has_the_source_of_the_other() -> None:
    text = WHOLE
    text += '\n[release.copy]\nlike = "cuda13_0"\nfolder = "copy/.flox/pkgs"\ncatalog = "copy"\n'
    matrix = matrix_reader.parse(text)
    assert sources(matrix, (), "copy") == sources(matrix, (), "cuda13_0")


def test_a_log_names_a_variant_only_if_no_other_release_has_the_name() -> None:
    text = WHOLE
    text += '\n[release.copy]\nlike = "cuda13_0"\nfolder = "copy/.flox/pkgs"\ncatalog = "copy"\n'
    matrix = matrix_reader.parse(text)
    of_copy = matrix.of_release("copy")
    line = f"building {of_copy[0].package}".encode()
    assert named_package(matrix.variants, [line]) is None
    assert named_package(select(matrix, [], "copy"), [line]) is of_copy[0]
