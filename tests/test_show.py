"""`invoke show`: everything about one variant, on screen and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import PROJECT, WHOLE, Project, error_line
from msgspec.structs import replace

from build_pytorch.base import digest
from build_pytorch.matrix import matrix_reader
from build_pytorch.results import ledger
from build_pytorch.results.package_state import PackageState

HERE = Project(PROJECT)


def shown(project: Project, *argv: str) -> dict[str, Any]:
    done = project.invoke("show", *argv, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_rules_say_what_they_change_and_why() -> None:
    document = shown(HERE, "cuda12_8/sm61-avx")
    variant = next(v for v in matrix_reader.parse(WHOLE).variants if v.id == "cuda12_8/sm61-avx")
    assert [rule["id"] for rule in document["rules"]] == [r.id for r in variant.effects.rules]
    (first,) = [rule for rule in document["rules"] if rule["id"] == "no-cudnn-below-7-5"]
    assert first["effect"]["environment"] == {"USE_CUDNN": "0"}
    assert first["reason"].startswith("cuDNN 9.11 and newer")
    assert first["source"].startswith("https://")
    text = HERE.invoke("show", "cuda12_8/sm61-avx", "-v").stdout
    assert "no-cudnn-below-7-5: USE_CUDNN=0" in text
    assert "not confirmed: the cuDNN of pin" in text


def test_status_recipe_and_commands_of_a_variant() -> None:
    document = shown(HERE, "cuda13_0/sm121-avx2")
    assert document["status"] == "impossible-host"
    assert "no x86_64-linux machine has SM121" in document["reason"]
    assert document["recipe"]["path"].endswith("cuda13_0-sm121-avx2.nix")
    assert document["recipe"]["action"] == "unchanged"
    assert document["pin"]["rev"] in WHOLE
    assert document["commands"]["build"] == "invoke build cuda13_0/sm121-avx2"
    assert document["commands"]["publish"] == "invoke publish cuda13_0/sm121-avx2"
    assert (document["state"], document["events"]) == ("impossible-host", [])


def test_a_package_name_names_the_variant() -> None:
    package = "pytorch-python313-cuda13_0-sm90-avx2"
    assert shown(HERE, package)["id"] == "cuda13_0/sm90-avx2"
    assert shown(HERE, "cuda12_8/sm90-avx2")["id"] == "cuda12_8/sm90-avx2"


@pytest.mark.parametrize("variant", ["cuda13_0/sm120-avx2", "cuda12_8/sm61-avx"])
def test_the_first_screen_is_short_and_has_the_names_of_the_rules(variant: str) -> None:
    lines = HERE.invoke("show", variant).stdout.splitlines()
    assert len(lines) <= 20
    assert lines[-1].startswith("`-v` adds ")
    long = HERE.invoke("show", variant, "-v").stdout
    document = shown(HERE, variant)
    for rule in document["rules"]:
        assert rule["id"] in "\n".join(lines)
        assert rule["source"] not in "\n".join(lines)
        assert rule["source"] in long
    assert document["pin"]["rev"] in long


def test_what_nobody_confirmed_of_nixpkgs_is_said_until_the_package_is_built() -> None:
    said = HERE.invoke("show", "cuda13_2/sm90-avx2").stdout
    assert "its nixpkgs is not confirmed, see -v" in said
    package = next(
        it for it in matrix_reader.parse(WHOLE).variants if it.id == "cuda13_2/sm90-avx2"
    )
    state = PackageState(package=package, digest="sha256:1")
    assert state.doubts == package.pin.doubts
    assert replace(state, link="/nix/store/result", origin="sha256:1").doubts == ""


def test_the_last_build_and_its_log_are_named(project: Project) -> None:
    recipe = project.recipe("cuda13_0-sm121-armv9")
    event = ledger.Event(
        event="ended",
        at=ledger.now(),
        release="cuda13_0",
        variant="sm121-armv9",
        digest=digest.of_bytes(recipe.read_bytes()),
        attempt="20260101T000000",
        outcome="failed",
        cause="out-of-memory",
        seconds=1,
    )
    ledger.append(project.root, event)
    document = shown(project, "sm121-armv9")
    assert document["events"][-1]["outcome"] == "failed"
    log = f".build-pytorch/logs/{recipe.stem}/20260101T000000.log"
    assert document["log"] == log
    text = " ".join(project.invoke("show", "sm121-armv9").stdout.split())
    assert "(out-of-memory);" in text
    recipe.write_text(recipe.read_text() + "# mine\n")
    assert shown(project, "sm121-armv9")["recipe"]["action"] == "refused"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["sm90-*"], "packages; name one of them: cuda13_2/sm90-avx2"),
        (["sm90-avx2"], '"sm90-avx2" is ambiguous: cuda13_2/sm90-avx2, cuda13_0/sm90-avx2'),
        (["sm9-avx2"], 'no package matches "sm9-avx2"; did you mean'),
        (["sm70-avx2"], 'no package matches "sm70-avx2"'),
    ],
)
def test_anything_but_one_variant_is_an_error(argv: list[str], says: str) -> None:
    done = HERE.invoke("show", *argv)
    assert done.returncode == 2
    assert says in error_line(done)
