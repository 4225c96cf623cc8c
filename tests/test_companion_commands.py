"""Companions in publish, show and status."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from conftest import Project, needs_nix
from sample_fleet import LAST, Checkout, SampleFleet
from test_publish import Hub, hub  # noqa: F401 - a fixture

from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.publish.publication import Publishing, decide
from build_pytorch.results import artefacts, ledger
from build_pytorch.results.package_state import PackageState

ID = "cpu-avx2+torchvision"
TORCH, VISION, AUDIO = (f"{n}-python313-cpu-avx2" for n in ("pytorch", "torchvision", "torchaudio"))


def companion(matrix: Matrix) -> Package:
    return next(package for package in matrix.companions if package.id == ID)


# --- evidence and publish ---


def test_the_digest_of_a_companion_covers_the_recipe_of_its_variant(
    project: Project, matrix: Matrix
) -> None:
    package = companion(matrix)
    before = artefacts.recipe_digest(project.root, package)
    for path in (package.path, package.variant.path):
        name = f"# {Path(path).stem}\n"
        with project.edited(path, name, f"{name}# changed\n"):
            assert artefacts.recipe_digest(project.root, package) != before
    assert artefacts.recipe_digest(project.root, package) == before
    assert artefacts.recipe_digest(project.root, package.variant) != before


OWN_TORCH = "/nix/store/0-python3.13-pytorch210-python313-cpu-avx2-2.10.0"
OTHER_TORCH = "/nix/store/1-python3.13-torch-2.9.1"
NOT_SENT = f"its PyTorch is not published, and its closure has it: `invoke publish cpu-avx2,{ID}`"
BOTH = f"its closure has PyTorch {OWN_TORCH[13:]} {OTHER_TORCH[13:]}, and not "


@pytest.mark.parametrize(
    ("sent", "closure", "action", "reason"),
    [
        ({"cpu-avx2"}, [OWN_TORCH], "publish", "tested"),
        ((), [OWN_TORCH], "refused", NOT_SENT),
        ({"cpu-avx2"}, [OWN_TORCH, OTHER_TORCH], "refused", BOTH),
        ({"cpu-avx2"}, [OTHER_TORCH], "refused", f"has PyTorch {OTHER_TORCH[13:]}, and not "),
        ({"cpu-avx2"}, [], "refused", "its closure has PyTorch nowhere, and not pytorch210-"),
    ],
)
def test_a_companion_is_published_after_its_pytorch_which_alone_is_in_its_closure(
    matrix: Matrix, sent: Collection[str], closure: list[str], action: str, reason: str
) -> None:
    package, path = companion(matrix), "/nix/store/x"
    fields: dict[str, Any] = {"by": "inspect", "outcome": "passed"}
    events = (
        ledger.event_of(package, "ended", digest="sha256:0", outcome="built", outputs=(path,)),
        ledger.event_of(package, "tested", digest="sha256:0", output=path, **fields),
    )
    state = PackageState(package=package, digest="sha256:0", link=path, events=events)
    row = decide(state, Publishing(organization="acme", system=package.platform), sent, closure)
    assert (row.variant, row.action) == (ID, action)
    assert reason in row.reason


def add_results(hub: Hub) -> None:  # noqa: F811
    """Results of the companion and its variant in the store, and their evidence."""
    world = hub.world
    package = companion(matrix_reader.load(world.root))
    output = str((world.root / f"result-{TORCH}").resolve())
    held = f"${{builtins.storePath {output}}}"
    expression = f"""derivation {{
      name = "torchvision"; system = builtins.currentSystem; builder = "/bin/sh";
      args = [ "-c" "echo {held} > $out" ];
    }}"""
    link = world.root / f"result-{VISION}"
    argv, env = ["nix-build", "-E", expression, "-o", str(link)], {**os.environ, **world.env}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    common: dict[str, Any] = {
        "at": ledger.now(),
        "release": package.release_name,
        "variant": package.short_id,
        "digest": artefacts.recipe_digest(world.root, package),
    }
    made = str(link.resolve())
    for fields in (
        {"event": "ended", "attempt": "1", "outcome": "built", "seconds": 1.0, "outputs": (made,)},
        {"event": "tested", "by": "smoke", "outcome": "passed", "output": made},
    ):
        ledger.append(world.root, ledger.Event(**common, **fields))
    hub.add_evidence("cpu-avx2")


@pytest.mark.slow
@needs_nix
def test_variant_and_companion_are_published_torch_first(hub: Hub) -> None:  # noqa: F811
    add_results(hub)
    (hub.folder / f"broken-{TORCH}").touch()
    code, said = hub.publish(f"cpu-avx2,{ID}")
    assert (code, hub.calls) == (1, [f"publish {TORCH}"])
    assert "1 failed, 1 refused" in said
    (hub.folder / f"broken-{TORCH}").unlink()
    code, said = hub.publish(f"{ID},cpu-avx2", "--org", "acme")
    assert code == 0, said
    assert hub.calls[1:] == [
        f"publish -o acme {TORCH}",
        f"publish --dir companions -o acme {VISION}",
    ]
    assert hub.world.ledger()[-1]["variant"] == ID
    assert "2 already" in hub.publish(f"{ID},cpu-avx2", "--org", "acme")[1]


@needs_nix
def test_a_companion_alone_needs_its_pytorch_published_before(hub: Hub) -> None:  # noqa: F811
    add_results(hub)
    code, said = hub.publish(ID)
    assert code == 1
    assert NOT_SENT in " ".join(said.split())
    assert hub.calls == []
    assert hub.publish("cpu-avx2")[0] == 0
    assert hub.publish(ID)[0] == 0
    assert hub.calls[-1] == f"publish --dir companions {VISION}"


# --- show and status ---


def test_a_companion_is_shown_by_its_id_which_its_variant_names(still: Project) -> None:
    done = still.invoke("show", ID, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["id"], document["package"]) == (ID, VISION)
    assert (document["version"], document["torch"]) == ("0.25.0", "cpu-avx2")
    path = f"companions/.flox/pkgs/{VISION}.nix"
    assert (document["recipe"]["path"], document["recipe"]["action"]) == (path, "unchanged")
    said = " ".join(still.invoke("show", VISION).stdout.split())
    assert "companion torchvision 0.25.0 for the PyTorch of cpu-avx2" in said
    document = json.loads(still.invoke("show", "cpu-avx2", "--json").stdout)
    assert document["torch"] == document["id"]
    assert document["companions"] == [ID, "cpu-avx2+torchaudio"]


def test_a_companion_has_a_state_and_a_failure_of_its_own(checkout: Checkout) -> None:
    package = checkout.package(ID)
    checkout.failed(package, "error: builder failed\n")
    assert checkout.state(ID).overall == "failed"
    output = checkout.built(package, checkout.store, seconds=300.0)
    checkout.tested(package, output, by="inspect", outcome="passed")
    assert checkout.state(ID).overall == "tested"
    assert checkout.state("cpu-avx2").overall == "not built"
    fields: dict[str, Any] = {"event": "published", "output": output, "organization": "acme"}
    checkout.append(ledger.Event(**checkout.common(package, LAST), **fields))
    assert checkout.state(ID).overall == "published"


def test_status_has_companions_with_events_and_those_that_are_named(
    project: Project, matrix: Matrix
) -> None:
    SampleFleet(project.root).failed(companion(matrix), "error: builder failed\n")

    def rows(*words: str) -> dict[str, str]:
        document = json.loads(project.invoke("status", *words, "--json").stdout)
        return {row["id"]: row["state"] for row in document["packages"]}

    assert {"cpu-avx2": "not built", ID: "failed"}.items() <= rows().items()
    assert "cpu-avx2+torchaudio" not in rows()
    named = {"cpu-avx2": "not built", "cpu-avx512+torchaudio": "not built"}
    assert named.items() <= rows("--packages", "cpu-avx2,cpu-*+torchaudio").items()
