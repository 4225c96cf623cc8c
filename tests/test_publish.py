"""Publishing: built packages with evidence, one after the other, as Flox takes them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Project, needs_nix, unfolded
from world import World

from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import select_packages
from build_pytorch.nix.store import this_system
from build_pytorch.publish.publication import Publishing, decide
from build_pytorch.results import ledger
from build_pytorch.results.package_state import PackageState

DIGEST = "sha256:0123456789abcdef"
RESULT = "/nix/store/x"

# Answers as Flox does; what it was called with is in calls.
FLOX = """#!/bin/sh
echo "$@" >> {calls}
for word; do package=$word; done
[ -e {logged_in} ] || { echo "error: You are not logged in to FloxHub." >&2; exit 1; }
[ ! -e {broken}-$package ] || { echo "error: upload of $package failed" >&2; exit 1; }
echo "Package published successfully."
"""


class Hub:
    """A world with Flox and two built variants: a copy of a built checkout."""

    def __init__(self, built: World, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["cp", "-a", built.folder / "project", folder / "project"], check=True)
        self.world = World(Project(folder / "project"), built.site, folder, is_built=True)
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
        event = ledger.Event(
            event="tested", at=ledger.now(), by=by, outcome=outcome, output=RESULT, **common
        )
        ledger.append(self.world.root, event)

    def publish(self, *argv: str) -> tuple[int, str]:
        done = self.world.project.run("invoke", "publish", *argv, env=self.world.env)
        return done.returncode, unfolded(done.stdout + done.stderr)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def hub(built: World, tmp_path: Path) -> Hub:
    return Hub(built, tmp_path)


# --- the decision ---


def outcome_of(by: ledger.TestKind, outcome: str, digest: str = DIGEST) -> dict[str, str]:
    return {"event": "tested", "by": by, "outcome": outcome, "digest": digest, "output": RESULT}


def state_of(
    matrix: Matrix, *events: dict[str, str], id_: str = "cpu-avx2", link: str = RESULT, **built: Any
) -> PackageState:
    """A built variant, with these events of its ledger."""
    (variant,) = select_packages(matrix, id_)
    first = {"event": "ended", "outcome": "built", "outputs": [RESULT], **built}
    common = {"at": ledger.now(), "release": "cuda13_0", "variant": id_, "digest": DIGEST}
    own = (msgspec.convert({**common, **event}, ledger.Event) for event in (first, *events))
    return PackageState(package=variant, digest=DIGEST, link=link, events=tuple(own))


SENT = {"event": "published", "organization": "acme"}
NOTHING = "no smoke test or inspection passed yet"
INSPECTION, COMPATIBLE = outcome_of("inspect", "passed"), outcome_of("smoke", "compatible")
SMOKE, SKIPPED, FAILED = (outcome_of("smoke", it) for it in ("passed", "skipped", "failed"))


@pytest.mark.parametrize(
    ("events", "fields", "allowed", "wanted"),
    [
        ([SMOKE], {}, False, "publish"),
        ([INSPECTION], {}, False, "publish"),
        ([SKIPPED, INSPECTION], {}, False, "publish"),
        ([SMOKE, SKIPPED], {}, False, "publish"),
        ([FAILED, INSPECTION], {}, False, "its smoke test failed"),
        ([SMOKE, FAILED], {}, True, "its smoke test failed: see its report"),
        ([outcome_of("inspect", "failed")], {}, True, "its inspection failed"),
        ([FAILED, SMOKE], {}, False, "publish"),
        ([COMPATIBLE], {}, False, "it ran only on a GPU of another architecture"),
        ([SKIPPED], {}, False, NOTHING),
        ([outcome_of("smoke", "passed", "another")], {}, False, NOTHING),
        ([], {}, False, NOTHING),
        ([], {}, True, "publish"),
        ([SMOKE], {"digest": "another"}, True, "not built for this recipe"),
        ([SMOKE], {"link": ""}, True, "not built for this recipe"),
        ([SMOKE], {"outputs": []}, True, "no record of the recipe it was built from"),
        ([SMOKE, SENT], {}, False, "published to acme"),
        ([SMOKE, {**SENT, "organization": "other"}], {}, False, "publish"),
    ],
)
def test_only_a_result_of_the_recipe_with_evidence_is_published(
    matrix: Matrix, events: list[dict[str, str]], fields: dict[str, Any], allowed: bool, wanted: str
) -> None:
    state = state_of(matrix, *events, **fields)
    how = Publishing(organization="acme", system=state.package.platform, without_evidence=allowed)
    decided = decide(state, how, ())
    actions = {"publish": "publish", "published to acme": "already"}
    assert decided.action == actions.get(wanted, "refused")
    assert wanted in f"publish {decided.reason}"


OTHER = "sm121-armv9" if this_system() == "x86_64-linux" else "cpu-avx2"


def test_a_variant_of_another_platform_is_refused_unless_flox_is_told(matrix: Matrix) -> None:
    """Flox writes the platform of the machine into the catalogue, whatever was built."""
    state = state_of(matrix, INSPECTION, id_=OTHER)
    wanted = state.package.platform
    refused = decide(state, Publishing(), ())
    here = f"is for {wanted}, and Flox here publishes for {this_system()}"
    reason = f"{here}; publish it there, or with --system {wanted}"
    assert (refused.action, refused.reason) == ("refused", reason)
    assert decide(state, Publishing(system=wanted), ()).action == "publish"


# --- the command ---


@needs_nix
def test_what_has_evidence_is_published_once_to_each_organization(hub: Hub) -> None:
    """Without --org to the publisher of the matrix. A message of Flox is shown."""
    hub.add_evidence("cpu-avx2")
    hub.add_evidence("cpu-avx512", by="inspect")
    project = hub.world.project
    project.edit("matrix.toml", "# publisher = ", 'publisher = "acme"  # ')
    (hub.folder / "logged_in").unlink()
    code, said = hub.publish("cpu-avx2")
    assert (code, "error: You are not logged in to FloxHub." in said) == (1, True)
    (hub.folder / "logged_in").touch()
    (hub.folder / "broken-pytorch-python313-cpu-avx2").touch()
    code, said = hub.publish("cpu-avx*")
    assert (code, "upload of pytorch-python313-cpu-avx2 failed" in said) == (1, True)
    assert said.endswith("1 failed, 1 published, 2 refused")
    (hub.folder / "broken-pytorch-python313-cpu-avx2").unlink()
    assert hub.publish("cpu-avx2")[0] == 0
    event = hub.world.ledger()[-1]
    assert (event["event"], event["organization"]) == ("published", "acme")
    assert "without_evidence" not in event
    status = project.run("invoke", "status", "--packages", "cpu-avx2", "--json", env=hub.world.env)
    (row,) = json.loads(status.stdout)["packages"]
    wanted = {"built": "yes", "tested": "passed", "published": "yes", "inspected": "-"}
    assert wanted.items() <= row["steps"].items()
    code, said = hub.publish("cpu-avx2")
    assert (code, said.endswith("1 already")) == (0, True)
    assert hub.publish("cpu-avx2", "--org", "other")[0] == 0
    assert hub.calls[2:] == [
        "publish -o acme pytorch-python313-cpu-avx512",
        "publish -o acme pytorch-python313-cpu-avx2",
        "publish -o other pytorch-python313-cpu-avx2",
    ]


@needs_nix
def test_two_runs_at_once_publish_once(hub: Hub) -> None:
    """Another run publishes after our first look, which reads the store."""
    hub.add_evidence("cpu-avx2")
    line = json.dumps({**hub.world.ledger()[-1], "event": "published"})
    book = hub.world.root / ledger.FILE
    append = f"grep -q published {book} || echo '{line}' >> {book}"
    hub.world.program(
        "nix-store", f'#!/bin/sh\n{shutil.which("nix-store")} "$@"; code=$?\n{append}\nexit $code\n'
    )
    code, said = hub.publish("cpu-avx2")
    assert (code, hub.calls, said.endswith("1 already")) == (0, [], True)


@needs_nix
def test_a_result_without_evidence_is_refused_and_a_dry_run_sends_nothing(hub: Hub) -> None:
    code, said = hub.publish("cpu-avx2")
    assert (code, hub.calls) == (1, [])
    assert "no smoke test or inspection passed yet" in said
    code, said = hub.publish("cpu-avx2", "--without-evidence", "--dry-run")
    assert (code, hub.calls) == (0, [])
    assert said.endswith("1 publish")
    assert hub.publish("cpu-avx2", "--without-evidence")[0] == 0
    assert hub.world.ledger()[-1]["without_evidence"] is True
    (hub.world.bin / "flox").unlink()
    code, said = hub.publish("cpu-avx512", "--without-evidence")
    assert (code, "flox" in said) == (2, True)
