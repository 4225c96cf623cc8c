"""Publishing: built variants with evidence, if Flox takes them, one after the other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import OF_ANOTHER_USER, PROJECT, Project, error_line, needs_nix, unfolded
from world import World

from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import select
from build_pytorch.publish.publication import PackageFacts, carry_out, decide, this_system
from build_pytorch.results import ledger
from build_pytorch.results.package_state import PackageState

LEDGER = ".build-pytorch/ledger.jsonl"
DIGEST = "sha256:0123456789abcdef"

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
            subprocess.run(["cp", "-a", built.folder / name, folder / name], check=True)
        project = Project(folder / "project")
        self.world = World(project, built.site, folder, is_built=True)
        project.git("remote", "set-url", "origin", str(folder / "remote.git"))
        (folder / "logged_in").touch()
        text = FLOX
        for name in ("calls", "logged_in", "broken"):
            text = text.replace("{" + name + "}", str(folder / name))
        self.world.program("flox", text)

    def add_evidence(
        self, variant: str, outcome: ledger.TestOutcome = "passed", by: ledger.TestKind = "smoke"
    ) -> None:
        events = [event for event in self.world.ledger() if event["variant"] == variant]
        built = [event for event in events if event.get("outcome") == "built"][-1]
        common = {key: built[key] for key in ("release", "variant", "digest")}
        test = ledger.Tested(
            at=ledger.now(), by=by, outcome=outcome, output=built["outputs"][0], **common
        )
        ledger.Ledger(self.world.root).append(test)

    def publish(self, *argv: str) -> tuple[int, str]:
        done = self.world.project.run("invoke", "publish", *argv, env=self.world.env)
        return done.returncode, unfolded(done.stdout + done.stderr)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith("publish")]


@pytest.fixture
def hub(built: World, tmp_path: Path) -> Hub:
    return Hub(built, tmp_path)


# --- the decision ---


def state_of(matrix: Matrix, id_: str = "cpu-avx2", **fields: Any) -> PackageState:
    """A built variant; `smoke_test` and `inspection` are outcomes."""
    (variant,) = select(matrix, [id_])
    common: dict[str, Any] = {"at": ledger.now(), "release": "cuda13_0", "digest": DIGEST}
    tests: dict[str, ledger.TestKind] = {"smoke_test": "smoke", "inspection": "inspect"}
    for name, by in tests.items():
        if outcome := fields.get(name):
            fields[name] = ledger.Tested(
                **common, variant=id_, by=by, outcome=outcome, output="/nix/store/x"
            )
    return PackageState(package=variant, digest=DIGEST, **{"output": "/nix/store/x", **fields})


@pytest.mark.parametrize(
    ("fields", "allowed", "wanted"),
    [
        ({"smoke_test": "passed"}, False, "publish"),
        ({"inspection": "passed"}, False, "publish"),
        ({"smoke_test": "skipped", "inspection": "passed"}, False, "publish"),
        ({"smoke_test": "failed", "inspection": "passed"}, False, "its smoke test failed"),
        ({"smoke_test": "failed"}, True, "its smoke test failed"),
        ({"inspection": "failed"}, True, "its inspection failed"),
        ({"smoke_test": "compatible"}, False, "it ran only on a GPU of another architecture"),
        ({"smoke_test": "skipped"}, False, "no smoke test or inspection passed yet"),
        ({}, False, "no smoke test or inspection passed yet"),
        ({}, True, "publish"),
        ({"output": "", "stale": "/nix/store/x"}, True, "not built for this recipe"),
        ({"output": ""}, True, "not built for this recipe"),
        ({"output": "", "unknown": "/nix/store/x"}, True, "no record of the recipe it was built"),
        ({"local_packages": "/home/me/packages"}, True, "its CUDA packages come from /home/me/"),
        ({"organizations": ("acme",)}, False, "published to acme"),
    ],
)
def test_only_a_result_of_the_recipe_with_evidence_is_published(
    matrix: Matrix, fields: dict[str, Any], allowed: bool, wanted: str
) -> None:
    state = state_of(matrix, **fields)
    system = state.package.platform
    decided = decide(state, "acme", without_evidence=allowed, system=system)
    known = {"publish": "publish", "published to acme": "already"}
    assert decided.action == known.get(wanted, "refused")
    assert wanted == "publish" or wanted in decided.reason


OTHER = "sm121-armv9" if this_system() == "x86_64-linux" else "cpu-avx2"


def test_a_variant_of_another_platform_is_refused_unless_flox_is_told(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flox writes the platform of the machine into the catalogue, whatever was built."""
    state = state_of(matrix, OTHER, inspection="passed")
    wanted = state.package.platform
    refused = decide(state, "", without_evidence=True)
    assert refused.action == "refused"
    assert refused.reason == (
        f"is for {wanted}, and Flox here publishes for {this_system()}; "
        f"publish it there, or with --system {wanted}"
    )
    flox = tmp_path / "flox"
    flox.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/call\n')
    flox.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    decided = decide(state, "acme", without_evidence=False, system=wanted)
    assert carry_out(decided, state, tmp_path, "acme", lambda _: None).action == "published"
    call = f"publish -o acme --system {wanted} {state.package.package}\n"
    assert (tmp_path / "call").read_text() == call


def test_what_is_broken_or_unknown_is_shown_as_such() -> None:
    assert "broken: Flox does not install it" in PackageFacts(system="x", broken=True).text
    assert PackageFacts(problem="Nix is not installed").text == (
        "unknown system, closure of unknown size, broken or not: unknown (Nix is not installed)"
    )


# --- the command ---


@needs_nix
def test_what_has_evidence_is_published_once_to_each_organization(hub: Hub) -> None:
    """Without --org to the publisher of the matrix."""
    hub.add_evidence("cpu-avx2")
    hub.add_evidence("cpu-avx512", by="inspect")
    project = hub.world.project
    project.edit("matrix.toml", "repository = ", 'publisher = "acme"\nrepository = ')
    project.git("commit", "-qam", "Name the publisher")
    project.git("push", "-q")
    code, said = hub.publish("cpu-avx2", "cpu-avx512")
    assert code == 0, said
    event = hub.world.ledger()[-1]
    assert (event["event"], event["organization"]) == ("published", "acme")
    assert "without_evidence" not in event
    status = project.run("invoke", "status", "cpu-avx2", "--json", env=hub.world.env)
    (row,) = json.loads(status.stdout)["variants"]
    assert (row["built"], row["smoke"], row["published"]) == ("yes", "passed", "yes")
    code, said = hub.publish("cpu-avx2")
    assert (code, said.endswith("0 published, 1 already")) == (0, True)
    assert hub.publish("cpu-avx2", "--org", "other")[0] == 0
    assert hub.calls == [
        "publish -o acme pytorch-python313-cpu-avx2",
        "publish -o acme pytorch-python313-cpu-avx512",
        "publish -o other pytorch-python313-cpu-avx2",
    ]


@needs_nix
def test_two_runs_at_once_publish_once(hub: Hub) -> None:
    """Another run publishes after our first look: during the last query before the lock."""
    hub.add_evidence("cpu-avx2")
    tested = hub.world.ledger()[-1]
    fields = {key: tested[key] for key in ("at", "release", "variant", "digest", "output")}
    line = msgspec.json.encode(ledger.Published(**fields)).decode()
    append = f"case \"$*\" in *branch*) echo '{line}' >> {hub.world.root / LEDGER} ;; esac"
    hub.world.program("git", f'#!/bin/sh\n{append}\nexec {shutil.which("git")} "$@"\n')
    code, said = hub.publish("cpu-avx2")
    assert (code, hub.calls) == (0, [])
    assert "0 published, 1 already" in said


@needs_nix
def test_a_second_run_publishes_only_what_is_not_published(hub: Hub) -> None:
    for name in ("cpu-avx2", "cpu-avx512"):
        hub.add_evidence(name)
    (hub.folder / "broken-pytorch-python313-cpu-avx2").touch()
    code, said = hub.publish("cpu-avx2", "cpu-avx512")
    assert code == 1
    assert "upload of pytorch-python313-cpu-avx2 failed" in said
    assert "1 published, 1 not" in said
    (hub.folder / "broken-pytorch-python313-cpu-avx2").unlink()
    code, _ = hub.publish("cpu-avx2", "cpu-avx512")
    assert code == 0
    assert hub.calls[2:] == ["publish pytorch-python313-cpu-avx2"]


@needs_nix
def test_a_result_without_evidence_or_of_another_recipe_is_refused(hub: Hub) -> None:
    code, said = hub.publish("cpu-avx2")
    assert code == 1
    assert "no smoke test or inspection passed yet" in said
    assert hub.calls == []
    assert hub.publish("cpu-avx2", "--without-evidence")[0] == 0
    assert hub.world.ledger()[-1]["without_evidence"] is True
    recipe = hub.world.project.recipe("cpu-avx2")
    recipe.write_text(f"{recipe.read_text()}# mine\n")
    assert "not built for this recipe" in hub.publish("cpu-avx2", "--dry-run")[1]
    hub.world.project.git("checkout", "-q", str(recipe))
    (hub.world.root / LEDGER).unlink()
    code, said = hub.publish("cpu-avx2", "--without-evidence")
    assert code == 1
    assert "no record of the recipe it was built from; `invoke build cpu-avx2`" in said


@needs_nix
def test_system_broken_closure_and_evidence_are_shown_before_anything_is_sent(hub: Hub) -> None:
    hub.add_evidence("cpu-avx2")
    hub.add_evidence("cpu-avx2", by="inspect")
    event, site = hub.world.ledger()[-1], hub.world.site
    argv = ("publish", "cpu-avx2", "cpu-avx512", "--dry-run", "--json")
    done = hub.world.project.run("invoke", *argv, env=hub.world.env)
    ready, refused = json.loads(done.stdout)["variants"]
    paths = site.nix("nix-store", "--query", "--requisites", event["output"]).split()
    size = sum(map(int, site.nix("nix-store", "--query", "--size", *paths).split()))
    expected = {
        "system": this_system(), "broken": False, "closure_bytes": size,
        "digest": event["digest"], "evidence": ["smoke", "inspect"],
    }  # fmt: skip
    assert expected.items() <= ready.items()
    assert (refused["action"], refused["system"]) == ("refused", None)
    shown = f"{this_system()}, closure {size / 2**30:.2f} GiB, not broken"
    said = unfolded(done.stderr)
    assert f"publish cpu-avx2 recipe {event['digest'][:19]}, passed smoke test and insp" in said
    assert shown in said
    assert hub.calls == []
    code, said = hub.publish("cpu-avx2")
    assert code == 0
    assert said.index(shown) < said.index("$ flox publish")


@needs_nix
def test_what_flox_would_refuse_is_reported_before_anything_is_published(hub: Hub) -> None:
    """Each fault is added to those before it, and all are named at once."""
    hub.add_evidence("cpu-avx2")
    project, git = hub.world.project, hub.world.project.git
    recipe, lock = ".flox/pkgs/pytorch-python313-cpu-avx2.nix", ".flox/env/manifest.lock"
    faults: dict[str, Callable[[], object]] = {
        "this commit is on no remote branch": lambda: git(
            "commit", "-q", "--allow-empty", "-m", "more"
        ),
        "uncommitted changes: README.md": lambda: project.edit("README.md", "# build", "# Build"),
        f"not tracked by Git: `git add {recipe}`": lambda: git("rm", "-q", "--cached", recipe),
        f"{lock} is not tracked by Git, and Flox": lambda: git("rm", "-q", "--cached", lock),
        "not logged in at FloxHub: flox auth login": (hub.folder / "logged_in").unlink,
        "flox is not installed": (hub.world.bin / "flox").unlink,
        "the checkout has no remote": lambda: git("remote", "remove", "origin"),
    }
    for says, add_fault in faults.items():
        add_fault()
        code, said = hub.publish("cpu-avx2")
        assert code == 2
        assert "nothing was published" in said
        assert says in said
    code, said = hub.publish("cpu-avx2", "--dry-run")
    assert code == 2
    assert "dry run: all would be refused: flox is not installed" in said
    argv = ("publish", "cpu-avx2", "--dry-run", "--json")
    document = json.loads(project.run("invoke", *argv, env=hub.world.env).stdout)
    assert document["exit_code"] == 2
    assert len(document["obstacles"]) == 5
    assert hub.calls == []
    said = project.run("invoke", *argv, env={**hub.world.env, **OF_ANOTHER_USER}).stdout
    refusal = json.loads(said)["obstacles"][-1]
    assert refusal.startswith(f"Git refuses {project.root}: detected dubious ownership")
    assert "git config --global --add safe.directory" in refusal


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "name what to publish"),
        (["cuda13_0/cpu-avx3"], "did you mean"),
        (["cpu-avx2", "--org=-x"], 'found "-x"; allowed: letters'),
        (["cpu-avx2", "--org=a/b"], 'found "a/b"'),
        (["cpu-avx2", "--system", "arm64"], 'found "arm64"; allowed: x86_64-linux or aarch64'),
        (["cpu-avx2", "--org", ""], "a variable that is not set"),
    ],
)
def test_what_cannot_be_meant_is_one_line(argv: list[str], says: str) -> None:
    done = Project(PROJECT).invoke("publish", *argv)
    assert done.returncode == 2
    assert says in error_line(done)
