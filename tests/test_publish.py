"""Publishing: built packages with evidence, one after the other, as Flox takes them."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from built_files import variant_of
from conftest import needs_nix, unfolded
from msgspec.structs import replace
from world import World

from build_pytorch.nix.store import this_system
from build_pytorch.publish.publication import Publishing, decide
from build_pytorch.results import ledger
from build_pytorch.results.ledger import event_of
from build_pytorch.results.package_state import PackageState

DIGEST = "sha256:0123456789abcdef"
RESULT = "/nix/store/x"

# --- the decision ---


def outcome_of(by: ledger.TestKind, outcome: str, digest: str = DIGEST) -> dict[str, str]:
    return {"event": "tested", "by": by, "outcome": outcome, "digest": digest, "output": RESULT}


def state_of(
    *events: dict[str, Any], id_: str = "cpu-avx2", link: str = RESULT, **built: Any
) -> PackageState:
    """A built variant, with these events of its ledger."""
    package = variant_of(id_)
    first = {"event": "ended", "outcome": "built", "outputs": [RESULT], **built}
    own = (event_of(package, **{"digest": DIGEST, **event}) for event in (first, *events))
    return PackageState(package=package, digest=DIGEST, link=link, events=tuple(own))


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
    events: list[dict[str, str]], fields: dict[str, Any], allowed: bool, wanted: str
) -> None:
    state = state_of(*events, **fields)
    how = Publishing(organization="acme", system=state.package.platform, without_evidence=allowed)
    decided = decide(state, how, ())
    actions = {"publish": "publish", "published to acme": "already"}
    assert decided.action == actions.get(wanted, "refused")
    assert wanted in f"publish {decided.reason}"


OTHER = "sm121-armv9" if this_system() == "x86_64-linux" else "cpu-avx2"


def test_a_variant_of_another_platform_is_refused_unless_flox_is_told() -> None:
    """Flox writes the platform of the machine into the catalogue, whatever was built."""
    state = state_of(INSPECTION, id_=OTHER)
    wanted = state.package.platform
    refused = decide(state, Publishing(), ())
    here = f"is for {wanted}, and Flox here publishes for {this_system()}"
    reason = f"{here}; publish it there, or with --system {wanted}"
    assert (refused.action, refused.reason) == ("refused", reason)
    assert decide(state, Publishing(system=wanted), ()).action == "publish"


# --- the command ---

# Answers as Flox does; what it was called with is beside it.
FLOX = """#!/bin/sh
cd "${0%/*}"
echo "$@" >> calls
for word; do package=$word; done
[ ! -e logged_out ] || { echo "error: You are not logged in to FloxHub." >&2; exit 1; }
[ ! -e broken-$package ] || { echo "error: upload of $package failed" >&2; exit 1; }
echo "Package published successfully."
"""


@pytest.fixture
def hub(changed: World) -> World:
    """A checkout with Flox and two built variants."""
    changed.program("flox", FLOX)
    return changed


def publish(hub: World, *argv: str) -> tuple[int, str]:
    done = hub.project.run("invoke", "publish", *argv, env=hub.env)
    return done.returncode, unfolded(done.stdout + done.stderr)


def calls(hub: World) -> list[str]:
    path = hub.bin / "calls"
    return path.read_text().splitlines() if path.exists() else []


def add_evidence(hub: World, variant: str, by: ledger.TestKind = "smoke") -> None:
    events = ledger.read(hub.root).events
    (built,) = (e for e in events if (e.variant, e.outcome) == (variant, "built"))
    test = {"event": "tested", "by": by, "outcome": "passed", "output": RESULT, "outputs": ()}
    ledger.append(hub.root, replace(built, **test))


@needs_nix
def test_what_has_evidence_is_published_once_to_each_organization(hub: World) -> None:
    """Without --org to the publisher of the matrix. A message of Flox is shown."""
    add_evidence(hub, "cpu-avx2")
    add_evidence(hub, "cpu-avx512", by="inspect")
    hub.project.edit("matrix.toml", "# publisher = ", 'publisher = "acme"  # ')
    (hub.bin / "logged_out").touch()
    code, said = publish(hub, "cpu-avx2")
    assert (code, "error: You are not logged in to FloxHub." in said) == (1, True)
    (hub.bin / "logged_out").rename(hub.bin / "broken-pytorch-python313-cpu-avx2")
    code, said = publish(hub, "cpu-avx*")
    assert (code, "upload of pytorch-python313-cpu-avx2 failed" in said) == (1, True)
    assert said.endswith("1 failed, 1 published, 2 refused")
    (hub.bin / "broken-pytorch-python313-cpu-avx2").unlink()
    assert publish(hub, "cpu-avx2")[0] == 0
    event = hub.ledger()[-1]
    assert (event["event"], event["organization"]) == ("published", "acme")
    assert "without_evidence" not in event
    code, said = publish(hub, "cpu-avx2")
    assert (code, said.endswith("1 already")) == (0, True)
    assert publish(hub, "cpu-avx2", "--org", "other")[0] == 0
    assert calls(hub)[2:] == [
        "publish -o acme pytorch-python313-cpu-avx512",
        "publish -o acme pytorch-python313-cpu-avx2",
        "publish -o other pytorch-python313-cpu-avx2",
    ]


@needs_nix
def test_two_runs_at_once_publish_once(hub: World) -> None:
    """Another run publishes after our first look, which reads the store."""
    add_evidence(hub, "cpu-avx2")
    line = json.dumps({**hub.ledger()[-1], "event": "published"})
    book = hub.root / ledger.FILE
    append = f"grep -q published {book} || echo '{line}' >> {book}"
    store = shutil.which("nix-store")
    hub.program("nix-store", f'#!/bin/sh\n{store} "$@"; code=$?\n{append}\nexit $code\n')
    code, said = publish(hub, "cpu-avx2")
    assert (code, calls(hub), said.endswith("1 already")) == (0, [], True)


@needs_nix
def test_a_result_without_evidence_is_refused_and_a_dry_run_sends_nothing(hub: World) -> None:
    code, said = publish(hub, "cpu-avx2")
    assert (code, calls(hub)) == (1, [])
    assert "no smoke test or inspection passed yet" in said
    code, said = publish(hub, "cpu-avx2", "--without-evidence", "--dry-run")
    assert (code, calls(hub)) == (0, [])
    assert said.endswith("1 publish")
    assert publish(hub, "cpu-avx2", "--without-evidence")[0] == 0
    assert hub.ledger()[-1]["without_evidence"] is True
    (hub.bin / "flox").unlink()
    code, said = publish(hub, "cpu-avx512", "--without-evidence")
    assert (code, "flox" in said) == (2, True)
