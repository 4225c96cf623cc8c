"""Publishing: built variants with evidence, if Flox takes them, one after the other."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from conftest import Project, copied_project, unfolded
from world import Site, World, programs, served

from build_pytorch.base.errors import WriteError
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import select
from build_pytorch.publish.publication import PackageFacts, carry_out, decide, this_system
from build_pytorch.results import ledger
from build_pytorch.results.package_state import PackageState, package_states

pytestmark = pytest.mark.skipif(programs() is not None, reason=programs() or "")

# Answers as Flox does to what we ask it; what it was called with is in calls.
FLOX = """#!/bin/sh
echo "$@" >> {calls}
case "$1 $2" in
"auth status") [ -e {logged_in} ] ;;
publish*)
    for word; do package=$word; done
    [ ! -e {broken}-$package ] || { echo "error: upload of $package failed" >&2; exit 1; }
    echo "Package published successfully." ;;
esac
"""


class Hub:
    """A world with Flox, a Git remote, and two built variants: a copy of a built checkout."""

    def __init__(self, built: World, folder: Path) -> None:
        self.folder = folder
        for name in ("project", "remote.git"):
            shutil.copytree(built.folder / name, folder / name, symlinks=True)
        project = Project(folder / "project")
        self.world = World(project, built.site, folder, is_built=True)
        project.git("remote", "set-url", "origin", str(folder / "remote.git"))
        (folder / "logged_in").touch()
        text = FLOX
        for name in ("calls", "logged_in", "broken"):
            text = text.replace("{" + name + "}", str(folder / name))
        self.world.program("flox", text)

    def add_evidence(
        self,
        variant: str,
        outcome: Literal["passed", "failed", "skipped", "compatible"] = "passed",
        by: Literal["smoke", "inspect"] = "smoke",
    ) -> None:
        built = [
            event
            for event in self.world.ledger()
            if event["variant"] == variant and event.get("outcome") == "built"
        ][-1]
        ledger.Ledger(self.world.root).append(
            ledger.Tested(
                at=ledger.now(),
                release="cuda13_0",
                variant=variant,
                digest=built["digest"],
                by=by,
                outcome=outcome,
                output=built["outputs"][0],
            )
        )

    def publish(self, *argv: str) -> tuple[int, str]:
        done = self.world.project.run("invoke", "publish", *argv, env=self.world.env)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith("publish")]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A committed and pushed checkout with two built variants, on a site of its own."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "site").mkdir()
    with served(Site(folder / "site")) as site:
        world = World(copied_project(folder / "project"), site, folder)
        git = world.project.git
        (world.root / ".flox/env/manifest.lock").write_text("{}\n")
        world.project.commit()
        git("init", "-q", "--bare", str(folder / "remote.git"))
        git("remote", "add", "origin", str(folder / "remote.git"))
        git("push", "-q", "-u", "origin", "HEAD")
        assert world.build("cpu-avx2", "cpu-avx512", "--backend", "nix").returncode == 0
        yield world


@pytest.fixture
def hub(built: World, tmp_path: Path) -> Hub:
    return Hub(built, tmp_path)


def test_a_ledger_that_is_no_regular_file_is_an_error_and_does_not_block(tmp_path: Path) -> None:
    book = tmp_path / ".build-pytorch/ledger.jsonl"
    book.parent.mkdir()
    os.mkfifo(book)
    with pytest.raises(WriteError, match="not a regular file"):
        list(ledger.Ledger(tmp_path).events())


def test_what_is_built_and_has_evidence_is_published_and_recorded(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    hub.add_evidence("cpu-avx512", by="inspect")
    code, said = hub.publish("cpu-avx2", "cpu-avx512", "--org", "acme")
    assert code == 0, said
    assert hub.calls == [
        "publish -o acme pytorch-python313-cpu-avx2",
        "publish -o acme pytorch-python313-cpu-avx512",
    ]
    event = hub.world.ledger()[-1]
    assert (event["event"], event["organization"]) == ("published", "acme")
    assert "without_evidence" not in event
    done = hub.world.project.run("invoke", "status", "cpu-avx2", "--json", env=hub.world.env)
    assert json.loads(done.stdout)["variants"][0]["published"] == "yes"


def test_what_was_published_before_is_not_published_again(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    assert "1 published\n" in hub.publish("cpu-avx2")[1]
    code, said = hub.publish("cpu-avx2")
    assert code == 0
    assert "0 published, 1 already\n" in said
    assert len(hub.calls) == 1


def test_each_organization_gets_its_own(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    for organization in ("acme", "other", "acme"):
        assert hub.publish("cpu-avx2", "--org", organization)[0] == 0
    assert hub.publish("cpu-avx2")[0] == 0
    name = "pytorch-python313-cpu-avx2"
    assert hub.calls == [
        f"publish -o acme {name}",
        f"publish -o other {name}",
        f"publish {name}",
    ]


def test_two_runs_at_once_publish_once(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    # Another run publishes after our first look: during the last query before the lock.
    event = ledger.Published(
        at=ledger.now(),
        release="cuda13_0",
        variant="cpu-avx2",
        digest=hub.world.ledger()[-1]["digest"],
        output=hub.world.ledger()[-1]["output"],
    )
    line = msgspec.json.encode(event).decode()
    real = shutil.which("git")
    book = hub.world.root / ".build-pytorch/ledger.jsonl"
    hub.world.program(
        "git",
        f'#!/bin/sh\ncase "$*" in *branch*) echo \'{line}\' >> {book} ;; esac\nexec {real} "$@"\n',
    )
    code, said = hub.publish("cpu-avx2")
    assert code == 0
    assert "0 published, 1 already" in said
    assert hub.calls == []


def test_a_second_run_publishes_only_what_is_not_published(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    hub.add_evidence("cpu-avx512")
    (hub.folder / "broken-pytorch-python313-cpu-avx2").touch()
    code, said = hub.publish("cpu-avx2", "cpu-avx512")
    assert code == 1
    assert "upload of pytorch-python313-cpu-avx2 failed" in said
    assert "1 published, 1 not" in said
    (hub.folder / "broken-pytorch-python313-cpu-avx2").unlink()
    code, _ = hub.publish("cpu-avx2", "cpu-avx512")
    assert code == 0
    assert hub.calls[2:] == ["publish pytorch-python313-cpu-avx2"]


def test_what_has_no_evidence_is_refused_unless_it_is_allowed(hub: Hub) -> None:
    code, said = hub.publish("cpu-avx2")
    assert code == 1
    assert "no smoke test or inspection passed yet" in said
    assert hub.calls == []
    code, _ = hub.publish("cpu-avx2", "--without-evidence")
    assert code == 0
    assert hub.world.ledger()[-1]["without_evidence"] is True


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        (["failed"], "its smoke test failed"),
        (["passed", "failed"], "its smoke test failed"),
        (["compatible"], "it ran only on a GPU of another architecture"),
        (["skipped"], "no smoke test or inspection passed yet"),
        (["failed", "passed"], ""),
        (["passed", "skipped"], ""),
    ],
)
def test_the_last_verdict_counts_and_no_verdict_takes_none_back(
    hub: Hub,
    fleet: Matrix,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[Literal["passed", "failed", "skipped", "compatible"]],
    says: str,
) -> None:
    for outcome in outcomes:
        hub.add_evidence("cpu-avx2", outcome)
    for name, value in hub.world.env.items():
        monkeypatch.setenv(name, value)
    (result,) = package_states(hub.world.root, select(fleet, ["cpu-avx2"])).values()
    decided = decide(result, "", without_evidence=False)
    assert decided.action == ("refused" if says else "publish")
    assert says in decided.reason


@pytest.mark.parametrize(("by", "name"), [("smoke", "smoke test"), ("inspect", "inspection")])
def test_a_result_with_a_failed_test_is_never_published(
    hub: Hub, by: Literal["smoke", "inspect"], name: str
) -> None:
    hub.add_evidence("cpu-avx2", "failed", by)
    code, said = hub.publish("cpu-avx2", "--without-evidence")
    assert code == 1
    assert f"its {name} failed" in said
    assert hub.calls == []


def test_a_result_of_unknown_origin_is_not_published(hub: Hub) -> None:
    (hub.world.root / ".build-pytorch/ledger.jsonl").unlink()
    code, said = hub.publish("cpu-avx2", "--without-evidence")
    assert code == 1
    wanted = "no record of the recipe it was built from; `invoke build cpu-avx2`"
    assert wanted in " ".join(said.split())
    assert hub.world.build("cpu-avx2", "--backend", "nix").returncode == 0
    assert hub.publish("cpu-avx2", "--without-evidence")[0] == 0


def test_a_failed_smoke_test_outweighs_a_passed_inspection(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2", "passed", "inspect")
    hub.add_evidence("cpu-avx2", "failed", "smoke")
    assert hub.publish("cpu-avx2")[0] == 1


def test_what_is_not_built_for_the_current_recipe_is_refused(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    hub.world.project.edit("matrix.toml", "max_jobs = 32", "max_jobs = 30")
    hub.world.project.invoke("phase4")
    hub.world.project.commit()
    hub.world.project.git("push", "-q")
    code, said = hub.publish("cpu-avx2")
    assert code == 1
    assert "not built for this recipe" in said


def test_a_dry_run_publishes_nothing(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    code, said = hub.publish("cpu-avx2", "--dry-run")
    assert code == 0
    digest = hub.world.ledger()[-1]["digest"]
    assert f"publish    cpu-avx2  recipe {digest[:19]}, passed smoke test\n" in said
    assert hub.calls == []


def test_system_broken_closure_and_evidence_are_shown_before_anything_is_sent(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    hub.add_evidence("cpu-avx2", by="inspect")
    done = hub.world.project.run(
        "invoke", "publish", "cpu-avx2", "cpu-avx512", "--dry-run", "--json", env=hub.world.env
    )
    ready, refused = json.loads(done.stdout)["variants"]
    assert (ready["system"], ready["broken"]) == (this_system(), False)
    output = hub.world.ledger()[-1]["output"]
    paths = hub.world.site.nix("nix-store", "--query", "--requisites", output).split()
    sizes = hub.world.site.nix("nix-store", "--query", "--size", *paths).split()
    assert ready["closure_bytes"] == sum(map(int, sizes))
    assert ready["digest"] == hub.world.ledger()[-1]["digest"]
    assert ready["evidence"] == ["smoke", "inspect"]  # or the files of the reports
    assert (refused["action"], refused["system"]) == ("refused", None)
    shown = f"{this_system()}, closure {sum(map(int, sizes)) / 2**30:.2f} GiB, not broken"
    assert shown in done.stderr
    assert "passed smoke test and inspection" in " ".join(done.stderr.split())
    code, said = hub.publish("cpu-avx2")
    assert code == 0
    assert said.index(shown) < said.index("$ flox publish")


def test_a_broken_package_is_shown_as_broken() -> None:
    assert "broken: Flox does not install it" in PackageFacts(system="x", broken=True).text


def test_what_cannot_be_evaluated_is_shown_as_unknown() -> None:
    facts = PackageFacts(problem="Nix is not installed")
    assert facts.text == (
        "unknown system, closure of unknown size, broken or not: unknown (Nix is not installed)"
    )


# --- platforms ---


def result_for(fleet: Matrix, id_: str) -> PackageState:
    """A built variant with evidence."""
    (variant,) = select(fleet, [id_])
    event = ledger.Tested(
        at=ledger.now(),
        release=variant.release_name,
        variant=id_,
        digest="sha256:0123456789abcdef",
        by="inspect",
        outcome="passed",
        output="/nix/store/x",
    )
    return PackageState(package=variant, digest=event.digest, output=event.output, inspection=event)


OTHER = "sm121-armv9" if this_system() == "x86_64-linux" else "cpu-avx2"


def test_a_variant_of_another_platform_is_refused(fleet: Matrix) -> None:
    """Flox writes the platform of the machine into the catalogue, whatever was built."""
    result = result_for(fleet, OTHER)
    wanted = result.variant.cpu.platform
    refused = decide(result, "", without_evidence=True)
    assert refused.action == "refused"
    assert refused.reason == (
        f"is for {wanted}, and Flox here publishes for {this_system()}; "
        f"publish it there, or with --system {wanted}"
    )
    assert decide(result, "", without_evidence=False, system=wanted).action == "publish"


def test_another_platform_is_told_to_flox(
    fleet: Matrix, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in hub.world.env.items():
        monkeypatch.setenv(name, value)
    result = result_for(fleet, OTHER)
    wanted = result.variant.cpu.platform
    decided = decide(result, "acme", without_evidence=False, system=wanted)
    done = carry_out(decided, result, hub.world.root, "acme", lambda _: None)
    assert done.action == "published"
    assert hub.calls == [f"publish -o acme --system {wanted} {result.variant.package}"]


def test_a_dry_run_says_that_all_would_be_refused(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    spoil(hub, "unpushed")
    code, said = hub.publish("cpu-avx2", "--dry-run")
    assert code == 2
    assert "dry run: all would be refused:\n  this commit is on no remote branch" in said
    done = hub.world.project.run(
        "invoke", "publish", "cpu-avx2", "--dry-run", "--json", env=hub.world.env
    )
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode == 2
    assert document["obstacles"] == ["this commit is on no remote branch: git push"]
    assert hub.calls == []


def spoil(hub: Hub, fault: str) -> None:
    project = hub.world.project
    match fault:
        case "dirty":
            project.edit("README.md", "# build-pytorch", "# build pytorch")
        case "untracked":
            project.git("rm", "-q", "--cached", ".flox/pkgs/pytorch-python313-cpu-avx2.nix")
        case "unpushed":
            project.git("commit", "-q", "--allow-empty", "-m", "more")
        case "no remote":
            project.git("remote", "remove", "origin")
        case "unlocked":
            project.git("rm", "-q", "--cached", ".flox/env/manifest.lock")
            project.git("commit", "-q", "-m", "without the lock")
            project.git("push", "-q")
        case "logged out":
            (hub.folder / "logged_in").unlink()
        case _:
            (hub.world.bin / "flox").unlink()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("dirty", "uncommitted changes: README.md"),
        ("untracked", "not tracked by Git: git add .flox/pkgs/pytorch-python313-cpu-avx2.nix"),
        (
            "unlocked",
            ".flox/env/manifest.lock is not tracked by Git, and Flox requires it; git add",
        ),
        ("unpushed", "this commit is on no remote branch: git push"),
        ("no remote", "the checkout has no remote"),
        ("logged out", "not logged in at FloxHub: flox auth login"),
        ("no flox", "flox is not installed"),
    ],
)
def test_what_flox_would_refuse_is_reported_before_anything_is_published(
    hub: Hub, fault: str, says: str
) -> None:
    hub.add_evidence("cpu-avx2")
    spoil(hub, fault)
    code, said = hub.publish("cpu-avx2")
    assert code == 2
    assert says in unfolded(said)
    assert hub.calls == []


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "name what to publish"),
        (["cpu-avx3"], "did you mean"),
        (["cpu-avx2", "--org=-x"], 'found "-x"; allowed: letters'),
        (["cpu-avx2", "--org=a/b"], 'found "a/b"'),
        (["cpu-avx2", "--system", "arm64"], 'found "arm64"; allowed: x86_64-linux or aarch64'),
        (["cpu-avx2", "--org", ""], "a variable that is not set"),
    ],
)
def test_what_cannot_be_meant_is_one_line(hub: Hub, argv: list[str], says: str) -> None:
    code, said = hub.publish(*argv)
    assert code == 2
    assert says in said
