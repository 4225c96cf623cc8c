"""What a pin contains: learned by one evaluation of a nixpkgs, or assumed, and written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ONE, Project, error_line, needs_nix
from msgspec import structs
from one_release import written_out
from test_prefetch import archive, nixpkgs, tool

from build_pytorch.base import paths
from build_pytorch.base.errors import MatrixError
from build_pytorch.generate import recipes
from build_pytorch.matrix import known_hardware, matrix_reader, matrix_text
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import CudaSetFacts, Pin, PinFacts
from build_pytorch.sources import pin_facts, release_move
from build_pytorch.sources.release_move import Move
from build_pytorch.verify.recipe_facts import MODEL

__all__ = ["nixpkgs"]  # a fixture

PIN = "6a030d535719c5190187c4cec156f335e95e3211"
NEW_PIN = "1123456789abcdef0123456789abcdef01234567"
HASH = "sha256-" + "B" * 42 + "A="

SETS = {"cudaPackages_12_9": "12.9", "cudaPackages_13": "13.0", "cudaPackages_13_0": "13.0"}
CUDA = " ".join(f'{name} = "{version}";' for name, version in SETS.items())
OLDER = f"""{{ torch = "2.9.1"; python = "3.13"; cuda = {{ {CUDA} }};
  has = [ "magma-clock-rate" ]; companions.triton = "3.5.1"; }}"""


def offer(folder: Path, rev: str, contents: str) -> None:
    """Offer the model of nixpkgs, with these contents, as the tarball of a revision."""
    tree = folder / "tree"
    shutil.copytree(MODEL, tree / "model", dirs_exist_ok=True)
    model = f'{{ modelSource = {{ url = "/archive/{rev}.tar.gz"; sha256 = null; }};'
    model += f' modelRevisions."{rev}" = {contents}; }}'
    (tree / "default.nix").write_text(f"args: import ./model ({model} // args)")
    archive(folder, rev, tree)


def learned(folder: Path, contents: str, text: str = ONE) -> Pin:
    """What `invoke prefetch --only nixpkgs` learns of a pin with these contents."""
    matrix = matrix_reader.parse(text)
    offer(folder, PIN, contents)
    return pin_facts.learned(matrix, matrix.pins["early_2026"])


@needs_nix
def test_one_evaluation_says_what_a_nixpkgs_contains(nixpkgs: Path) -> None:
    """On the model of nixpkgs with torch 2.9.1."""
    pin = learned(nixpkgs, OLDER)
    assert (pin.rev, pin.torch, pin.python, pin.cuda) == (PIN, "2.9.1", "3.13", SETS)
    assert pin.has == ("magma-clock-rate",)  # known by the URL of its patch
    default = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1")
    on_12 = CudaSetFacts(cccl="cuda_cccl", capabilities=default)
    on_13 = structs.replace(on_12, broken=("Unsupported CUDA version",))
    assert pin.facts == PinFacts(
        of=PIN,
        pythons=("3.11", "3.12", "3.13", "3.14"),
        magma_patches=("drop-cmp0037.patch", "fix-cuda13-compat.patch"),
        torch_patches=("patch-for-torch-2.9.1.patch", "fix-cmake-cuda-toolkit.patch"),
        cuda_sets={
            "cudaPackages_12_9": on_12,
            "cudaPackages_13": on_13,
            "cudaPackages_13_0": on_13,
        },
    )


NEWER = """{ torch = "2.13.0"; python = "3.14"; cuda.cudaPackages_13_2 = "13.2"; cccl = "cccl";
  has = [ "magma-clock-rate" "cccl-headers" ]; companions.triton = "3.7.0"; }"""


@needs_nix
def test_one_evaluation_says_what_a_newer_nixpkgs_contains(nixpkgs: Path) -> None:
    """On the model of the expression of torch 2.13.0."""
    pin = learned(nixpkgs, NEWER)
    assert (pin.torch, pin.python, pin.cuda) == ("2.13.0", "3.14", {"cudaPackages_13_2": "13.2"})
    assert pin.has == ("magma-clock-rate", "cccl-headers", "cmake-flags")
    assert pin.facts
    assert "fix-cmake-cuda-toolkit.patch" in (pin.facts.torch_patches or ())
    found = pin.facts.cuda_sets["cudaPackages_13_2"]
    assert (found.cccl, found.broken) == ("cccl", ())


@needs_nix
def test_prefetch_writes_what_a_pin_contains(nixpkgs: Path, project: Project) -> None:
    """A rule ends with a pin that turns out to have its fix."""
    offer(nixpkgs, NEW_PIN, OLDER)
    matrix = project.root / paths.MATRIX
    matrix.write_text(ONE.replace(f'rev = "{PIN}"', f'rev = "{NEW_PIN}"'))
    refused = project.invoke("status")
    assert refused.returncode == 2
    assert f'pin.early_2026.facts.of: found "{PIN}"; allowed: {NEW_PIN}' in refused.stderr
    assert "`invoke prefetch --only nixpkgs` evaluates it" in " ".join(refused.stderr.split())
    done = project.invoke("prefetch", "--only", "nixpkgs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pin.early_2026: PyTorch 2.9.1, Python 3.13, CUDA 12.9, 13.0" in done.stdout
    pin = matrix_reader.load(project.root).pins["early_2026"]
    assert pin.facts
    assert (pin.facts.of, pin.facts.unconfirmed, pin.cuda) == (NEW_PIN, None, SETS)
    assert pin.sha256_of == NEW_PIN
    assert "clockrate" not in project.recipe("cuda13_0-sm90-avx2").read_text()
    written = matrix.read_text()
    assert project.invoke("prefetch", "--only", "nixpkgs").returncode == 0
    assert matrix.read_text() == written


def test_what_cannot_be_learned_changes_nothing(project: Project) -> None:
    """The hash comes from a stand-in for a download, and there is no Nix for the evaluation."""
    matrix = project.root / paths.MATRIX
    text = ONE.replace(f'rev = "{PIN}"', f'rev = "{NEW_PIN}"')
    matrix.write_text(text)
    tools = tool(project, "nix-prefetch-url", f"echo {HASH}")["PATH"].partition(":")[0]
    refused = project.run("invoke", "prefetch", "--only", "nixpkgs", env={"PATH": tools})
    assert refused.returncode == 2
    assert "nix-instantiate: not found; install Nix" in error_line(refused)
    assert matrix.read_text() == text


def test_what_a_pin_contains_is_required() -> None:
    """Of a pin whose revision and name are not known."""
    text = written_out(ONE).replace(PIN, NEW_PIN).replace("early_2026", "other")
    text = matrix_text.without_table(text, ("pin", "other", "facts"))
    with pytest.raises(MatrixError) as caught:
        matrix_reader.parse(text)
    assert "pin.other.facts: missing, so what it contains is not known" in str(caught.value)
    assert matrix_reader.parse(text, learning=True).pins["other"].facts is None


# --- a release of a pin that has its PyTorch ---


def moved(matrix: Matrix, **wanted: Any) -> Matrix:
    return release_move.moved(Move(matrix=matrix, name="cuda13_0", **wanted))[0]


@needs_nix
def test_the_own_torch_of_a_new_pin_is_taken(nixpkgs: Path) -> None:
    """Without an overlay, and without the rules for a source in place of it."""
    offer(nixpkgs, NEW_PIN, OLDER)
    matrix = matrix_reader.parse(ONE)
    new = moved(matrix, torch="2.9.1", nixpkgs=NEW_PIN)
    release = new.releases["cuda13_0"]
    assert all(source.is_of_pin for source in release.sources.values())
    assert release.torch.version == "2.9.1"
    beside = moved(matrix, beside="other", torch="2.9.1", nixpkgs=NEW_PIN).releases["other"]
    assert beside.torch == release.torch
    assert beside.companion == release.companion
    variant = next(v for v in new.variants if v.short_id == "sm90-avx2")
    assert "cccl-headers" in {rule.id for rule in variant.effects.rules}
    assert "github" not in {rule.when.torch_source for rule in variant.effects.rules}
    text = recipes.render(new)[variant.path]
    assert "patches = []" not in text
    assert "fetchFromGitHub" not in text


def test_what_is_learned_of_a_pin_takes_the_place_of_what_was_known() -> None:
    """In dotted keys, as `invoke bump --as` writes them; a known fix that the pin lacks goes."""
    added = moved(matrix_reader.parse(ONE), cuda="13.1").text
    rev = known_hardware.load().pin["february_2026"].rev
    known = ONE.replace(PIN, rev).replace('"cudaPackages_13"', '"cudaPackages_13_0"')
    for key, text in (("cuda13_1", added), ("early_2026", known)):
        pin = matrix_reader.parse(text).pins[key]
        assert pin.facts
        assert pin.doubts
        facts = structs.replace(pin.facts, unconfirmed=None)
        cuda = {"cudaPackages_13_0": "13.0", "cudaPackages_13_1": "13.1"}
        learned = structs.replace(pin, cuda=cuda, has=(), facts=facts, unconfirmed=None)
        written = pin_facts.written(text, key, learned, pin)
        assert matrix_reader.parse(written).pins[key] == learned
        assert learned.doubts == ""
