"""`invoke remove`: what goes, what stays and is named, and what is refused."""

from __future__ import annotations

import pytest
from conftest import PROJECT, WHOLE, Project, error_line, unfolded

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select
from build_pytorch.sources.matrix_removals import Removal

EXAMPLE = (PROJECT / "examples/all-lines/matrix.toml").read_text()


def ids(text: str) -> set[str]:
    return {variant.id for variant in matrix_reader.parse(text).variants}


def removed(text: str, *names: str) -> Removal:
    removal = Removal(matrix_reader.parse(text))
    for name in names:
        if name in removal.matrix.releases:
            removal.remove_release(name)
        else:
            removal.remove_variant(select(removal.matrix, [name])[0])
    return removal


@pytest.mark.parametrize(
    "name",
    [
        "cuda12_8/sm61-avx",  # the group has one GPU
        "cuda13_0/sm90-armv9",  # one ISA, and a folder
        "cuda13_0/sm90-avx512",  # several of both
        "cuda13_0/cpu-avx2",  # no GPU
    ],
)
def test_exactly_the_variant_goes(name: str) -> None:
    after = removed(WHOLE, name)
    assert ids(WHOLE) - ids(after.text) == {name}
    assert ids(after.text) <= ids(WHOLE)
    folders = {variant.id: variant.folder for variant in after.matrix.variants}
    before = {variant.id: variant.folder for variant in matrix_reader.parse(WHOLE).variants}
    assert folders.items() <= before.items(), "no other variant moves"


def test_the_last_variant_of_a_group_takes_the_group_with_it() -> None:
    after = removed(WHOLE, "cuda12_8/sm61-avx", "cuda12_8/sm61-avx2")
    assert not any(v.gpu_key == "sm61" for v in after.matrix.variants)
    titles = [group.title for group in after.matrix.releases["cuda12_8"].group]
    assert len(titles) == len(matrix_reader.parse(WHOLE).releases["cuda12_8"].group) - 1


@pytest.mark.parametrize("name", ["cuda13_0", "cuda12_8", "nightly"])
def test_exactly_the_tables_of_the_release_go(name: str) -> None:
    after = removed(WHOLE, name).text
    assert f"[release.{name}" not in after
    old, new = matrix_reader.tables(WHOLE), matrix_reader.tables(after)
    del old["release"][name]
    assert new == old


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (EXAMPLE, "l5", "l5: release l7 is like it; `invoke remove l7` first"),
        (EXAMPLE, "l5/sm90-avx2", "l5: release l7 is like it, with its variants"),
    ],
)
def test_what_another_release_needs_stays(text: str, name: str, says: str) -> None:
    with pytest.raises(BuildPytorchError, match=says):
        removed(text, name)


def test_the_last_variant_and_the_last_release_stay() -> None:
    last = removed(WHOLE, "cuda12_8", "nightly")
    with pytest.raises(BuildPytorchError, match="cuda13_0: the only release"):
        last.remove_release("cuda13_0")
    with pytest.raises(BuildPytorchError, match="the only variant of its release; `invoke remove"):
        removed(WHOLE, "nightly/sm121-armv9")
    with pytest.raises(BuildPytorchError, match="comes with nightly/sm121-armv9; remove that one"):
        removed(WHOLE, "nightly/sm121-armv9-wrapper")


def test_generated_files_go_and_all_else_is_named(whole: Project) -> None:
    whole.commit()
    nightly = select(matrix_reader.load(whole.root), ["nightly/sm121-armv9"])[0]
    log = whole.root / f".build-pytorch/logs/{nightly.package}/1.log"
    log.parent.mkdir(parents=True)
    log.write_text("a log")
    done = whole.invoke("remove", "nightly")
    assert done.returncode == 0, done.stdout + done.stderr
    said = unfolded(done.stdout)
    assert "left as it is: 1 log" in said
    assert "docs/explanation/build-notes-nightly.md" in said
    assert log.exists()
    assert not list((whole.root / "releases/nightly").rglob("*.nix"))
    assert not (whole.root / "docs/reference/releases/nightly.md").exists()
    assert whole.invoke("all", "--check").returncode == 0, "nothing is left to generate"


def test_a_recipe_edited_by_hand_stops_it_and_a_dry_run_writes_nothing(whole: Project) -> None:
    variant = select(matrix_reader.load(whole.root), ["cuda12_8/sm61-avx"])[0]
    before = whole.snapshot()
    assert whole.invoke("remove", variant.id, "--dry-run").returncode == 0
    assert whole.snapshot() == before
    path = whole.root / variant.path
    path.write_text(path.read_text() + "# mine\n")
    before = whole.snapshot()
    done = whole.invoke("remove", variant.id)
    assert done.returncode == 1
    assert "edited by hand, and no longer in matrix.toml" in unfolded(done.stdout)
    assert whole.snapshot() == before


def test_wrong_words_are_one_line(whole: Project) -> None:
    for words, says in (
        ((), "nothing to remove; name a release or a variant"),
        (("sm90-avx2",), '"sm90-avx2" is ambiguous'),
        (("cuda13_1",), 'no variant matches "cuda13_1"'),
        (("release", "cuda13_1"), 'no variant matches "cuda13_1"'),
        (("a\nb",), r'no variant matches "a\nb"'),
        (
            ("cuda13_0/sm90-avx2+torchvision",),
            "a companion, which goes with its variant; name cuda13_0/sm90-avx2",
        ),
    ):
        done = whole.invoke("remove", *words)
        assert (done.returncode, says in error_line(done)) == (2, True), done.stderr
