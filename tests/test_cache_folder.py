"""The option `cache`: recipes that use a compiler cache where builds see its folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, needs_nix, write_recipes

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build import build_obstacles
from build_pytorch.build.backends import BuildAction, Step
from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix.store import NixSettings
from build_pytorch.verify import verification


def with_cache(folder: str) -> Matrix:
    old = "max_jobs = 32\n"
    assert old in ONE
    return matrix_reader.parse(ONE.replace(old, f'cache = "{folder}"\n{old}', 1))


def test_recipes_have_the_block_only_with_the_option(matrix: Matrix) -> None:
    plain, cached = (recipes.render(m) for m in (matrix, with_cache("/var/cache/x")))
    for variant in matrix.variants:
        assert "ccache" not in plain[variant.path].lower()
        assert "if [ -w /var/cache/x ] " in cached[variant.path]


@needs_nix
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("-w /var/cache/x ]", "-w /var/cache/y ]"),
        ("CCACHE_DIR=/var/cache/x", "CCACHE_DIR=/tmp"),
        ("compilerCache() {", "compilerCache() { true;"),
        ('"\\ncompilerCacheCounts\\n"', '"\\nmake check\\n"'),
        ('"/build-pytorch"', '"/other"'),
    ],
)
def test_the_block_is_all_that_the_option_may_change(tmp_path: Path, old: str, new: str) -> None:
    """The checks that compare with nixpkgs allow exactly the block, with the right folder."""
    matrix = with_cache("/var/cache/x")
    variants = [v for v in matrix.variants if v.id in {"sm90-avx2", "cpu-avx2"}]
    texts = write_recipes(tmp_path, matrix, lambda text: text.replace(old, new))
    assert old in texts[variants[0].path]
    only = ["eval-unchanged", *([] if old else ["hook-files"])]
    findings = verification.verify(matrix, tmp_path, variants=variants, only=only).findings
    assert {finding.check for finding in findings} == ({"eval-unchanged"} if old else set())


@pytest.mark.parametrize("value", ["cache", "/var/cache/../etc", "/a b", "/", "/x/"])
def test_the_folder_must_be_absolute(value: str) -> None:
    with pytest.raises(BuildPytorchError, match="cache"):
        with_cache(value)


def test_a_note_says_whether_builds_see_the_folder() -> None:
    """/var/cache exists; pytest's own folders have names that the matrix refuses."""
    seen = "builds see it; any build can put wrong objects into it"
    unseen = "not seen by builds of the Nix on PATH; make it, and add `extra-sandbox-paths = {}?`"
    table = {
        ("/var/cache", "/var/cache?"): seen,
        ("/var/cache", "/var/cache=/x"): seen,
        ("/var/cache", "/var"): seen,
        ("/var/cache", "/var/cache2"): unseen,
        ("/var/none", "/var"): unseen,
    }
    for (folder, mounted), says in table.items():
        variant = with_cache(folder).variants[0]
        step = Step(package=variant, action=BuildAction.BUILD, reason="", digest="")
        (note,) = build_obstacles.cache_notes([step, step], NixSettings((), ("/bin/sh", mounted)))
        assert note.startswith(f"cache {folder}: {says.format(folder)}")


# --- the key of the cache ---


FLAGS = 'exec g++ $NIX_CFLAGS_COMPILE "$@"'  # a wrapper reads them from the environment
CFLAGS = "NIX_CFLAGS_COMPILE"
NVCC = (
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc"),
)


@pytest.mark.skipif(
    not (shutil.which("ccache") and shutil.which("g++")), reason="no ccache or no g++"
)
@pytest.mark.parametrize(
    ("wrappers", "variables"),
    [
        ((FLAGS, FLAGS), ({CFLAGS: "-O0"}, {CFLAGS: "-O2"})),
        # Only the output of the preprocessor tells; without it the paths are in the key.
        ((FLAGS, FLAGS), ({CFLAGS: "-isystem {}/2"}, {CFLAGS: "-isystem {}/3"})),
        # Two wrappers of a store have one time and one size.
        (('exec g++ -O0 "$@"', 'exec g++ -O2 "$@"'), ({}, {})),
        *(
            pytest.param(("", ""), ({name: "-lineinfo"}, {name: "-G"}), marks=NVCC)
            for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
        ),
    ],
)
def test_what_decides_about_an_object_is_in_the_key_of_the_cache(
    tmp_path: Path, wrappers: tuple[str, str], variables: tuple[dict[str, str], ...]
) -> None:
    """ccache alone returns the first object again."""
    for factor in ("2", "3"):
        stamped(tmp_path / factor / "factor.h", f"#define FACTOR {factor}\n")
    stamped(tmp_path / "a.cu", "__global__ void f(int *x) { *x *= 3; }\n")
    first, second = (
        compiled(tmp_path, wrapper, {k: v.format(tmp_path) for k, v in values.items()})
        for wrapper, values in zip(wrappers, variables, strict=True)
    )
    assert first != second


def stamped(path: Path, text: str) -> None:
    """Write a file with the time stamp that all files of a Nix store have."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    os.utime(path, (1, 1))


def compiled(folder: Path, wrapper: str, variables: dict[str, str]) -> bytes:
    """Compile a file in the cache of a folder: with a wrapper of g++, or with nvcc."""
    header = "#include <factor.h>\n" if "-isystem" in str(variables) else "#define FACTOR 3\n"
    stamped(folder / "a.cpp", f"{header}int f(int x) {{ return x * FACTOR; }}\n")
    compiler = folder / f"wrapper-{'O2' in wrapper}/g++"
    stamped(compiler, f"#!/bin/sh\n{wrapper}\n")
    script = (
        f"set -e -o pipefail; shopt -s inherit_errexit\n. {PROJECT}/nix/compiler_cache.sh\n"
        'export CCACHE_DIR=$out; compilerCache ccache; ccache "$@" -o "$out.o"'
    )
    source = [str(compiler), "-c", "a.cpp"] if wrapper else ["nvcc", "-arch=sm_90", "-c", "a.cu"]
    out = folder / "cache"
    env = {"PATH": os.environ["PATH"], "HOME": "/homeless-shelter", "out": str(out)}
    env |= {"NIX_BUILD_TOP": str(folder), "CXX": str(compiler), **variables}
    argv = ("bash", "-c", script, "bash", *source)
    subprocess.run(argv, check=True, env=env, cwd=folder, capture_output=True)
    return out.with_suffix(".o").read_bytes()
