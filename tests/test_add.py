"""`invoke add`: what is written into matrix.toml, and that it is all or nothing."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, WHOLE, Project, error_line, needs_nix
from test_bump import NEW_PIN, Api, api, commit  # noqa: F401 - a fixture
from test_prefetch import tool

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import choose
from build_pytorch.matrix import matrix_reader
from build_pytorch.sources.matrix_additions import Draft
from build_pytorch.sources.new_versions import NewVersions
from build_pytorch.sources.release_move import ReleaseMove

EXAMPLE = (PROJECT / "examples/all-lines/matrix.toml").read_text()
MACHINES = PROJECT / "tests/machines"


def added(text: str, *names: str, release: str = "") -> Draft:
    draft = Draft(matrix_reader.parse(text))
    for name in names:
        draft.add(name, release)
    assert draft.matrix.text == draft.text
    return draft


def new_ids(before: str, draft: Draft) -> list[str]:
    known = {variant.path for variant in matrix_reader.parse(before).variants}
    return [variant.short_id for variant in draft.matrix.variants if variant.path not in known]


def removed_lines(before: str, after: str) -> list[str]:
    rows = difflib.ndiff(before.splitlines(), after.splitlines())
    return [row[2:] for row in rows if row.startswith("- ")]


# --- GPU architectures ---


def test_a_gpu_gets_its_table_in_order_and_its_place_in_the_groups() -> None:
    draft = added(WHOLE, "sm70")
    tables = re.findall(r"(?m)^\[gpu\.(\w+)\]", draft.text)
    assert tables[tables.index("sm70") - 1 :][:3] == ["sm75", "sm70", "sm61"]
    table = tomllib.loads(draft.text)["gpu"]["sm70"]
    assert table["capability"] == "7.0"
    assert table["hosts"] == {"x86_64-linux": ["V100", "Titan V"]}
    assert (table["first_cuda"], table["last_cuda"]) == ("9.0", "12.9")
    assert table["source"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", table["checked"])
    isas = ["avx", "avx2", "avx512", "avx512bf16", "avx512vnni"]
    assert new_ids(WHOLE, draft) == [f"sm70-{isa}" for isa in isas]
    assert {v.release_name for v in draft.matrix.variants if v.gpu_key == "sm70"} == {"cuda12_8"}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("add", "V100", "--dry-run"), "[gpu.sm70]"),
        (("add", "GTX 1080 Ti", "--dry-run"), "nothing to do: matrix.toml has it"),
        (("build", "--gpu", "4090", "--dry-run"), "cuda13_0/sm89-avx2 "),
        (("build", "--gpu", "none", "--dry-run"), "cuda13_0/cpu-avx2 "),
        (("build", "--gpu", "V100"), '"sm70" is not in matrix.toml; `invoke add sm70` adds it'),
        (("build", "--gpu", "RTX 9999"), '"RTX 9999" is not in matrix.toml; there are sm121'),
    ],
)
def test_a_gpu_may_be_named_as_in_recommend(
    whole: Project, command: tuple[str, ...], says: str
) -> None:
    done = whole.invoke(*command)
    assert says in done.stdout + done.stderr


def test_all_else_stays_byte_for_byte() -> None:
    changed = removed_lines(WHOLE, added(WHOLE, "sm70").text)
    assert changed == ['gpu = ["sm120", "sm100", "sm90", "sm89", "sm86", "sm80", "sm75"]']


def test_sm75_is_one_command_also_where_the_matrix_knew_nothing_of_it() -> None:
    draft = added(ONE, "sm75")
    assert "sm75" not in matrix_reader.parse(ONE).gpus
    isas = ["avx2", "avx512", "avx512bf16", "avx512vnni", "armv8_2", "armv9"]
    assert new_ids(ONE, draft) == [f"sm75-{isa}" for isa in isas]
    assert draft.matrix.variants[0].id == matrix_reader.parse(ONE).variants[0].id


def test_hosts_of_that_time_limit_the_isas() -> None:
    """The hosts of a P100 have no AVX-512: it joins the group of the P40."""
    draft = added(WHOLE, "sm60")
    assert new_ids(WHOLE, draft) == ["sm60-avx", "sm60-avx2"]
    assert any("not confirmed" in note for note in draft.todo)


def test_a_multi_architecture_build_is_named_by_its_capabilities() -> None:
    draft = added(WHOLE, "cuda13_0/sm86_120-avx512")
    gpu = draft.matrix.gpus["sm86_120"]
    assert gpu.arch_list == "8.6;12.0"
    assert gpu.driver == "570.26"
    assert new_ids(WHOLE, draft) == ["sm86_120-avx512"]


def test_the_style_of_the_file_is_kept() -> None:
    """The example has tables in one line and releases that inherit their groups: l7 those of l5."""
    draft = added(EXAMPLE, "l5/sm60-avx2", "l2/sm70-avx2")
    assert "releases l5, l7 share groups; all of them get it" in draft.todo
    assert re.search(r"(?m)^sm60 = \{ capability", draft.text)
    assert sorted(new_ids(EXAMPLE, draft)) == ["sm60-avx2", "sm60-avx2", "sm70-avx2"]
    names = [release for release, it in draft.matrix.releases.items() if "sm70" in str(it.group)]
    assert names == ["l2", "l4", "l5", "l6", "l7"]


@needs_nix
def test_an_orin_gets_the_cuda_packages_for_jetson(whole: Project) -> None:
    """nixpkgs chooses them by its option cudaCapabilities, and passes it on to NCCL and MAGMA."""
    machine = str(MACHINES / "jetson-orin.json")
    done = whole.invoke("add", "--for-machine", machine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "that such a build runs on the JetPack of the\n    machine" in done.stdout
    folder = whole.root / "releases/cuda12_8/.flox/pkgs"
    recipe = (folder / "pytorch-python313-cuda12_8-sm87-armv8_2.nix").read_text()
    assert 'cudaCapabilities = [ "8.7" ];\n    };' in recipe
    assert "Best: cuda12_8/sm87-armv8_2" in whole.invoke("recommend", "--machine", machine).stdout
    refused = whole.invoke("add", "cuda12_8/sm87-armv9")
    why = "no machine has that pair: the CPU beside Jetson Orin, DRIVE Orin has armv8_2"
    assert error_line(refused) == f"sm87-armv9: {why}"


# --- variants and ISAs ---


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("sm90-armv8_2", ("gpu", "aarch64-linux", ("sm90",), ("armv8_2",))),
        ("cpu-armv9", ("cpu-only", "aarch64-linux", (), ("armv9",))),
        ("sm75-avx2", ("gpu", "x86_64-linux", ("sm75",), ("avx2",))),
        ("darwin-mps", ("mps", "aarch64-darwin", (), ("apple",))),
    ],
)
def test_a_variant_gets_a_group(name: str, group: tuple[object, ...]) -> None:
    draft = added(WHOLE, f"cuda13_0/{name}")
    assert new_ids(WHOLE, draft) == [name]
    new = draft.matrix.releases["cuda13_0"].group[-1]
    assert (new.kind, new.platform, new.gpu, new.cpu) == group
    assert removed_lines(WHOLE, draft.text) == []


def test_the_next_variant_of_a_group_joins_it() -> None:
    draft = added(ONE, "sm90-armv9", "sm90-armv8_2", "sm100-armv9")
    groups = draft.matrix.releases["cuda13_0"].group
    assert [(g.gpu, g.cpu) for g in groups if g.platform == "aarch64-linux"][1:] == [
        (("sm90",), ("armv8_2", "armv9")),
        (("sm100",), ("armv9",)),
    ]
    assert len({group.title for group in groups}) == len(groups)


def test_an_isa_joins_the_groups_of_its_platform_with_the_rules_that_it_needs() -> None:
    assert "avx" not in matrix_reader.parse(ONE).cpus
    draft = added(ONE, "avx")
    ids = new_ids(ONE, draft)
    assert "cpu-avx" in ids
    assert "sm80-avx" in ids
    rules = {
        rule.id for v in draft.matrix.variants if v.cpu_key == "avx" for rule in v.effects.rules
    }
    assert {"no-avx2-libraries", "no-avx2-kernels"} <= rules
    assert next(iter(draft.matrix.cpus)) == "avx"


def test_a_file_that_becomes_a_recipe_is_no_longer_on_the_list_of_deletions() -> None:
    before = matrix_reader.parse(ONE).releases["cuda13_0"].cleanup
    after = added(ONE, "sm120-avx").matrix.releases["cuda13_0"].cleanup
    name = "pytorch-python313-cuda13_0-sm120-avx.nix"
    assert [entry.action for entry in before if entry.file == name] == ["delete"]
    assert [entry.action for entry in after if entry.file == name] == ["rewrite"]


def test_what_is_there_already_changes_nothing() -> None:
    for name in ("cuda13_0/sm90-avx2", "cuda12_8/sm75", "cuda12_8/cpu-avx2"):
        assert added(WHOLE, name).text == WHOLE


@pytest.mark.parametrize(
    ("name", "release", "says"),
    [
        ("sm130", "", '"sm130": no facts about it; docs/how-to/add-a-gpu.md'),
        ("x" * 500, "", "no facts about it"),
        ("sm90-avx3", "", '"avx3": no facts about this ISA; did you mean'),
        ("sm61", "cuda13_0", "sm61: needs CUDA 8.0 to 12.9, release cuda13_0: CUDA 13.0"),
        ("cuda13_0/sm61-avx2", "", "needs CUDA 8.0 to 12.9"),
        ("sm121-avx2", "", "no x86_64-linux machine is known to have it: GB10"),
        ("sm70-avx2", "cuda14", '"cuda14": no such release'),
        ("nowhere/sm70-avx2", "", '"nowhere": no such release'),
        ("sm86_999-avx2", "", "no facts about sm999"),
        ("sm75+foo", "", '"sm75+foo": add takes no companion of one variant; write `invoke'),
        ("cuda12_8/sm90-avx512+torchvision", "", "add takes no companion"),
    ],
)
def test_a_wrong_name_is_one_line(name: str, release: str, says: str) -> None:
    with pytest.raises(BuildPytorchError, match=re.escape(says)) as caught:
        added(WHOLE, name, release=release)
    assert "\n" not in str(caught.value)


def test_a_variant_that_several_releases_can_have_needs_one_of_them() -> None:
    with pytest.raises(BuildPytorchError, match=r"releases l1, .*; write l1/sm70-avx2"):
        added(EXAMPLE, "sm70-avx2")


# --- releases ---


def test_a_release_takes_the_torch_of_a_pin_with_its_cuda() -> None:
    draft = Draft(matrix_reader.parse(WHOLE))
    draft.add_release(
        ReleaseMove(draft.matrix, "cuda12_8", NewVersions(cuda="12.9"), beside="cuda12_9")
    )
    new = draft.matrix.releases["cuda12_9"]
    assert new.cuda is not None
    assert (new.cuda.version, new.cuda.driver) == ("12.9", "525.60.13")
    assert new.torch.is_of_pin
    assert new.torch.version == draft.matrix.pins[new.nixpkgs.pin].torch
    assert new.names.gpu == "python313-cuda12_9"
    assert any("purpose" in note for note in draft.todo)
    assert removed_lines(WHOLE, draft.text) == []


def test_a_release_leaves_out_what_its_cuda_does_not_compile_for() -> None:
    draft = Draft(matrix_reader.parse(WHOLE))
    draft.add_release(
        ReleaseMove(draft.matrix, "cuda13_0", NewVersions(cuda="12.8"), beside="older")
    )
    gpus = {variant.gpu_key for variant in draft.matrix.of_release("older")}
    assert {"sm120", "sm100", "sm80"} < gpus
    assert gpus.isdisjoint({"sm103", "sm110", "sm121"})
    assert "12.8" in draft.matrix.pins[draft.matrix.releases["older"].nixpkgs.pin].cuda.values()


def test_a_release_like_one_that_inherits() -> None:
    draft = Draft(matrix_reader.parse(EXAMPLE))
    draft.add_release(ReleaseMove(draft.matrix, "l2", NewVersions(cuda="12.9"), beside="mine"))
    new = draft.matrix.releases["mine"]
    assert (new.like, new.python.version) == ("l1", "3.12")


# --- the command ---


@pytest.mark.slow
@needs_nix
def test_everything_is_written_or_nothing(whole: Project) -> None:
    before = whole.snapshot()
    done = whole.invoke("add", "cuda13_0/sm80-armv8_2", "--dry-run")
    assert done.returncode == 0
    assert '+gpu = ["sm80"]' in done.stdout
    assert "Dry run: nothing was written." in done.stdout
    assert whole.snapshot() == before
    done = whole.invoke("add", "--for-machine", str(MACHINES / "altra-a100.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (whole.pkgs / "pytorch-python313-cuda13_0-sm80-armv8_2.nix").exists()
    assert whole.invoke("all", "--check").returncode == 0
    again = whole.invoke("add", "--for-machine", str(MACHINES / "altra-a100.json"))
    assert again.returncode == 0
    assert "nothing to do" in again.stdout


@pytest.mark.slow
def test_a_page_that_somebody_edited_stops_all_of_it(whole: Project) -> None:
    page = "docs/reference/choosing.md"
    (whole.root / page).write_text((whole.root / page).read_text() + "mine\n")
    before = whole.snapshot()
    done = whole.invoke("add", "cuda13_0/cpu-armv9")
    assert done.returncode == 1
    assert "1 file edited by hand: nothing was written." in done.stdout
    assert whole.snapshot() == before


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "nothing to add; write sm75, cpu avx"),
        (["cpu"], "nothing to add"),
        (["gpu"], "nothing to add"),
        (["gpu", "sm130"], '"sm130": no facts about it; docs/how-to/add-a-gpu.md'),
        (["companion"], "nothing to add"),
        (["companion", "torchtext"], "--release: name one of cuda13_0"),
        (["companion", "torchcodc", "--release", "cuda13_0"], 'did you mean "torchcodec"'),
        (["companion", "torchcodec", "--release", "nightly"], "no version for PyTorch 2."),
        (["cpu-avx2+torchcodec"], "write `invoke add companion torchcodec --release NAME`"),
        (["cpu", "sm75"], '"sm75": no facts about this ISA'),
        (["release", "a"], "write: invoke add release NAME --like OTHER"),
        (["release", "a.b", "--like", "cuda12_8"], 'found "a.b"; allowed: a-z, 0-9 and _'),
        (["release", "a", "--like", "cuda12"], '--like "cuda12": no such release; did you'),
        (["release", "a", "--like", "cuda12_8", "--cuda", "12"], "--cuda: found"),
        (["sm70", "--cuda", "12.9"], "only with `release`"),
        (["sm70", "--for-machine", "x.json"], "--for-machine: takes no names beside it"),
        (["--for-machine", "none.json"], "none.json: cannot be read"),
        (["--for-machine", str(MACHINES / "a64fx.json")], "no known CPU ISA fits this machine"),
        (["\x1b[2J"], "no facts about it"),
    ],
)
def test_wrong_arguments_are_one_line(argv: list[str], says: str) -> None:
    done = Project(PROJECT).invoke("add", *argv, "--dry-run")
    assert done.returncode == 2
    assert says in error_line(done)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.json")), ids=lambda path: path.stem)
@pytest.mark.parametrize("text", [ONE, WHOLE], ids=["one", "whole"])
def test_what_recommend_proposes_can_be_added(path: Path, text: str) -> None:
    matrix = matrix_reader.parse(text)
    here = saved_machines.load(path)
    found = choose(matrix, here).ideal
    if found is None or found.is_in_matrix:
        return
    draft = Draft(matrix)
    for command in found.command.split(" && "):
        words = command.removeprefix("invoke add ").split()
        if words[0] == "release":
            draft.add_release(
                ReleaseMove(draft.matrix, words[3], NewVersions(cuda=words[5]), beside=words[1])
            )
        else:
            draft.add(words[0])
    again = choose(draft.matrix, here).ideal
    assert again is not None
    assert again.is_in_matrix


@pytest.mark.parametrize("name", ["sm75", "avx", "sm80-armv9", "sm86_120-avx512", "darwin-mps"])
def test_to_add_what_is_there_changes_nothing(name: str) -> None:
    once = added(WHOLE, name, release="cuda13_0").text
    assert once != WHOLE
    assert added(WHOLE, name, name, release="cuda13_0").text == once
    assert added(once, name, release="cuda13_0").text == once


@pytest.mark.parametrize(
    ("release", "version", "source"),
    [("cuda13_0", "0.10.0", "github"), ("cuda12_8", "0.7.0", "nixpkgs")],
)
def test_a_companion_is_added_to_one_release_in_the_version_for_its_pytorch(
    release: str, version: str, source: str
) -> None:
    draft = Draft(matrix_reader.parse(WHOLE))
    before = draft.matrix.companions
    draft.add_companion("torchcodec", release)
    added = [each for each in draft.matrix.companions if each.name == "torchcodec"]
    assert {each.release_name for each in added} == {release}
    assert len(added) == sum(v.release_name == release for v in draft.matrix.variants)
    assert len(draft.matrix.companions) == len(before) + len(added)
    found = draft.matrix.releases[release].companion.packages["torchcodec"]
    assert (found.version, found.source, found.hash) == (version, source, "")
    text = draft.text
    draft.add_companion("torchcodec", release)
    assert draft.text == text


# --- a release as `bump --as` makes it ---


def test_a_branch_of_flox_stands_for_its_newest_revision(api: Api, project: Project) -> None:  # noqa: F811
    api.answers["/repos/flox/nixpkgs/commits/stable"] = commit(NEW_PIN, "2026-11-01")
    argv = ("release", "next", "--like", "cuda13_0", "--nixpkgs", "stable")
    env = tool(project, "nix-prefetch-url", "echo no network >&2; exit 1")
    done = project.run("invoke", "add", *argv, "--assume", "early_2026", "--dry-run", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'+rev = "{NEW_PIN}"' in done.stdout
    assert "pin.next has no hash; `invoke prefetch --only nixpkgs` takes its hash" in " ".join(
        done.stdout.split()
    )


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        ("2.99.0", "pytorch/pytorch has no tag v2.99.0"),
        ("2.12.0rc1", "v2.12.0rc1 is a pre-release; --pre accepts it"),
        ("2.12", "has no tag v2.12"),
    ],
)
def test_a_pytorch_that_there_is_not_makes_no_release(
    api: Api,  # noqa: F811
    torch: str,
    says: str,
) -> None:
    del api
    argv = ("release", "next", "--like", "cuda13_0", "--torch", torch, "--dry-run")
    assert says in error_line(Project(PROJECT).invoke("add", *argv))


def release_of(*gpus: str, cuda: str = "13.1") -> Draft:
    draft = Draft(matrix_reader.parse(WHOLE))
    wanted = NewVersions(cuda=cuda, gpus=gpus)
    draft.add_release(ReleaseMove(draft.matrix, "cuda13_0", wanted, beside="next"))
    return draft


def test_a_release_may_take_some_gpus_only() -> None:
    draft = release_of("sm120", "sm90")
    own = {variant.short_id for variant in draft.matrix.of_release("next")}
    isas = ("avx2", "avx512", "avx512bf16", "avx512vnni")
    x86 = {f"{gpu}-{isa}" for gpu in ("sm120", "sm90") for isa in isas}
    assert own == {"sm90-armv9", *x86}
    assert {group.folder for group in draft.matrix.releases["next"].group} == {None}
    with pytest.raises(
        BuildPytorchError, match='--gpu "sm61": not among those of release cuda13_0'
    ):
        release_of("sm61")


def test_an_isa_makes_no_pair_that_no_machine_has() -> None:
    """No x86 machine has SM121 or SM110: GB10 and Thor are ARM."""
    draft = added(WHOLE, "avx", release="cuda13_0")
    new = new_ids(WHOLE, draft)
    assert "sm120-avx" in new
    assert not {"sm121-avx", "sm110-avx"} & {*new}
    assert all(not v.impossible for v in draft.matrix.variants if v.cpu_key == "avx")


def test_a_release_gets_no_pair_that_no_machine_has() -> None:
    draft = Draft(matrix_reader.parse(WHOLE))
    draft.add_release(ReleaseMove(draft.matrix, "cuda13_0", NewVersions(), beside="other"))
    own = draft.matrix.of_release("other")
    assert own
    assert not any(variant.impossible for variant in own)
