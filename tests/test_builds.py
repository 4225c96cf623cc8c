"""Builds, for real: the recipes as they are, real Nix, a model of nixpkgs behind a real download."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Project
from world import World, programs, served

pytestmark = pytest.mark.skipif(programs() is not None, reason=programs() or "")


@pytest.fixture
def world(project: Project, tmp_path: Path) -> Iterator[World]:
    with served(World(project, tmp_path)) as it:
        yield it


def test_a_variant_is_built_linked_logged_and_remembered(world: World) -> None:
    done = world.build("cpu-avx2", "--backend", "nix")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert world.link("cpu-avx2").resolve().is_relative_to(world.store)
