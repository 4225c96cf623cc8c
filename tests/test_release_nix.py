"""release.nix: valid for any titles, and what is wrong in it is found by evaluating it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, needs_nix, write_recipes
from mutations import cut, gone, swap
from world import Site, model

from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix.evaluation import shared_import
from build_pytorch.verify import verification
from build_pytorch.verify.verification import VerificationResult

AXES = {
    'gpu = ["sm120", "sm121", "sm110", "sm103", "sm100", "sm90", "sm89", "sm86", "sm80"]': (
        'gpu = ["sm110", "sm90"]'
    ),
    'cpu = ["avx2", "avx512", "avx512bf16", "avx512vnni"]': 'cpu = ["avx2", "avx512"]',
    'gpu = ["sm110", "sm121"]': 'gpu = ["sm110"]',
}
TEXT = re.sub(r"(?m)^cleanup = \[\n(  .+\n)+\]\n", "", ONE)
for old, new in AXES.items():
    assert old in TEXT
    TEXT = TEXT.replace(old, new)
FEW = matrix_reader.parse(TEXT)
"""A release of eight variants: each of these tests evaluates all recipes."""
SECOND = (PROJECT / "tests/second-release.toml").read_text()


def written(root: Path, matrix: Matrix) -> Path:
    """Write the recipes and release.nix of a matrix."""
    texts = write_recipes(root, matrix)
    (root / "release.nix").write_text(recipes.release_nix(matrix, texts))
    (root / "nix").mkdir(exist_ok=True)
    return root


def verified(root: Path, matrix: Matrix) -> VerificationResult:
    return verification.verify(matrix, root, only=["eval-release-nix"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = written(tmp_path_factory.mktemp("release"), FEW)
    assert verified(root, FEW).findings == []
    return root


@needs_nix
def test_any_titles_of_groups_yield_a_valid_release_nix(tmp_path: Path) -> None:
    text, titles = TEXT + SECOND, ['\\"; }?', "${x}", "''${x}"]
    for old, new in zip(("GPU x86", "GPU ARM", "CPU-only"), titles, strict=True):
        text = text.replace(f'title = "{old}"', f'title = "{new}"')
    matrix = matrix_reader.parse(text)
    assert matrix.releases["cuda13_0"].group[0].title == '"; }?'
    found = verified(written(tmp_path, matrix), matrix)
    assert (found.checks[0].state, found.findings) == ("passed", [])


def test_a_comment_or_an_address_with_dots_is_no_relative_path(matrix: Matrix) -> None:
    """An import with a relative path has another meaning in another folder, and is not shared."""
    recipe = recipes.render(matrix)[matrix.variants[0].path]
    recipe = swap("icl-utk-edu/magma/commit", "icl-utk-edu/../magma")(recipe)
    recipe = swap("overlays = [", "overlays = [  # ../../x")(recipe)
    assert "icl-utk-edu/../magma" in shared_import(recipe)
    copied = recipe.replace("overlays = [", "overlays = [ (import ../overlay.nix)")
    assert shared_import(copied) == ""


IMPORT = "nix/nixpkgs/cuda13_0-gpu-x86_64-linux.nix"
MISTAKES: dict[str, Callable[[str], str]] = {
    "a brace missing": cut(r"  \};\nin\n", "in\n"),
    "the nixpkgs of the other platform": cut(
        r"(?<=sm110-armv9\.nix \{ nixpkgs_pinned = )[\w-]+", "nixpkgs_cuda13_0-gpu-x86_64-linux"
    ),
    "the recipe of another variant": swap("-sm90-avx2.nix {", "-sm90-avx512.nix {"),
    "a package missing": gone('"pytorch-python313-cpu-avx2" = import'),
    "a package too many": swap('    "pytorch-python313-cpu-avx2"', '    "other" = { name = "x-y"; system = ""; };\n    "pytorch-python313-cpu-avx2"'),
    "impossible hosts left out": swap("impossibleHosts ? true", "impossibleHosts ? false"),
    "the network": swap("\nin\n", '\nin\nbuiltins.seq (builtins.fetchurl "http://example.org")'),
    "a companion with the torch of a sibling": cut(r'(?<=torchvision-python313-cuda13_0-sm90-avx2\.nix \{)(.*?)-sm90-avx2"', ' torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx512"'),
    "the overlays of another GPU": cut(r"(?<=pytorch-python313-cuda13_0-sm90-avx2\.nix \{ nixpkgs_pinned = )[\w-]+", "nixpkgs_cuda13_0-cpu-only-x86_64-linux"),
    "a package of nixpkgs replaced for one recipe": cut(r"(?<=pytorch-python313-cuda13_0-sm90-avx2\.nix \{ nixpkgs_pinned = )[\w-]+", "nixpkgs_cuda13_0-gpu-x86_64-linux // { inherit (nixpkgs_cuda13_0-gpu-aarch64-linux) python3Packages; }"),
    "an impossible variant among the others": swap("  torches = variants //", "  torches = variants // impossible //"),
    "no end": swap("\nin\n", "\nin\nlet f = x: f x; in f 1 //"),
    f"an overlay missing in {IMPORT}": cut(r"      # Overlay 2.*?\n      \}\)\n\n"),
}  # fmt: skip


@needs_nix
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_release_nix_or_its_imports_is_found(tree: Path, name: str) -> None:
    path = tree / (IMPORT if IMPORT in name else "release.nix")
    text = path.read_text()
    path.write_text(MISTAKES[name](text))
    try:
        found = verified(tree, FEW)
    finally:
        path.write_text(text)
    assert {(f.check, f.path) for f in found.findings} == {("eval-release-nix", "release.nix")}


@needs_nix
def test_release_nix_is_not_evaluated_without_it_or_a_recipe(tmp_path: Path) -> None:
    root, recipe = written(tmp_path, FEW), tmp_path / FEW.variants[-1].path
    recipe.unlink()
    for lacking in ("a recipe", "a recipe that is a pipe", "release.nix"):
        if lacking == "a recipe that is a pipe":
            os.mkfifo(recipe)
        if lacking == "release.nix":
            (root / lacking).unlink()
        (check,) = verified(root, FEW).checks
        assert check.state == "skipped", lacking
        assert check.reason in {"no such facts", "2 recipes not evaluated"}


PACKAGE = """
import NIX/tests.nix {
  pname = "torchvision-python313-cuda13_0-sm90-avx2";
  gpuArch = "9.0";
  requiredSystemFeatures = [ "big-parallel" "gccarch-haswell" ];
  passthru = { };
  pythonModule.pkgs.callPackage = function: _: function {
    gcc = null;
    python.withPackages = _: null;
    runCommand = name: attributes: command: derivation (removeAttrs attributes [ "nativeBuildInputs" ] // {
      inherit name;
      system = builtins.currentSystem;
      builder = "/bin/sh";
      args = [ "-ec" "python() { PYTHON \\"$@\\"; }; ${command}" ];
    });
  };
}
"""
SCRIPT = """
import os, sys
print(*sys.argv[1:], *sorted(os.listdir(os.path.dirname(__file__))))
sys.exit("no GPU" if "--capability" in sys.argv else 0)
"""


@needs_nix
def test_a_package_has_tests_that_run_the_script_of_smoke(site: Site, tmp_path: Path) -> None:
    for path, text in {
        "smoke/script.py": SCRIPT,
        "smoke/judge.py": "",
        "build/plan.py": "",
    }.items():
        (tmp_path / "build_pytorch" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "build_pytorch" / path).write_text(text)
    shutil.copytree(PROJECT / "nix", tmp_path / "nix")
    package = tmp_path / "package.nix"
    package.write_text(PACKAGE.replace("NIX", f"{tmp_path}/nix").replace("PYTHON", sys.executable))

    def built(name: str, *features: str) -> str:
        own = ("--option", "system-features", " ".join(features))
        argv = ("nix-build", str(package), "--no-out-link", *own, "-A", name)
        return Path(site.nix(*argv).strip()).read_text()

    assert built("tests.smoke", "gccarch-haswell").split() == [
        "--check", "--companion", "torchvision", "script.py",
    ]  # fmt: skip
    for features, says in ((["cuda"], "gccarch-haswell"), (["cuda", "gccarch-haswell"], "no GPU")):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            built("passthru.tests.gpuCheck", *features)
        assert says in caught.value.stderr


PURE = ("nix", "--extra-experimental-features", "nix-command flakes", "eval")


@pytest.mark.slow
@needs_nix
def test_restricted_evaluation_needs_an_allowed_uri_and_pure_evaluation_a_hash(
    site: Site,
    tmp_path: Path,
) -> None:
    """As the page on many variants says. flake.nix has the packages of release.nix."""
    pin, hash_ = FEW.pins["early_2026"], model()[1]
    rev = f'rev = "{pin.rev}"\n'
    hashed = TEXT.replace(rev, f'{rev}sha256 = "{hash_}"\nsha256_of = "{pin.rev}"\n')
    name = next(variant.package for variant in FEW.variants if not variant.impossible)

    def flake(text: str) -> tuple[Path, tuple[str, ...]]:
        root = tmp_path / str(len(text))
        root.mkdir()
        shutil.copy(PROJECT / "flake.nix", written(root, matrix_reader.parse(text)))
        return root, (*PURE, "--raw", f"path:{root}#packages.x86_64-linux.{name}.drvPath")

    _, pure = flake(TEXT)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        site.nix(*pure)
    assert "requires a 'sha256' argument" in caught.value.stderr
    root, pure = flake(hashed)
    restricted = ("nix-instantiate", "--restrict-eval", "-I", ".", "release.nix", "-A", name)
    allowed = ("--option", "allowed-uris", "https://github.com/")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        site.nix(*restricted, cwd=root)
    assert "is forbidden in restricted mode" in caught.value.stderr
    assert site.nix(*pure) == site.nix(*restricted, *allowed, cwd=root).strip()
    # Each output of the flake is evaluated, without a build.
    names = "x: builtins.mapAttrs (_: builtins.attrNames) x"
    wanted: dict[str, list[str]] = {}
    for package in (*FEW.variants, *FEW.companions):
        if not package.impossible:
            wanted.setdefault(package.platform, []).append(package.attribute)
    for output, more in (("packages", []), ("hydraJobs", ["tests"])):
        found = json.loads(site.nix(*PURE, "--json", f"path:{root}#{output}", "--apply", names))
        assert found == {platform: sorted(its + more) for platform, its in wanted.items()}
