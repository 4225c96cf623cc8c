"""The option `cache`: recipes that use a compiler cache where builds see its folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
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


class Compiling:
    """Compiles one file twice in one cache, as builds with the option do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "a.cpp").write_text("int f(int x) { return x * FACTOR; }\n")
        (folder / "a.cu").write_text("__global__ void f(int *x) { *x *= FACTOR; }\n")

    def object(self, *argv: str, **variables: str) -> bytes:
        script = (
            f"set -e -o pipefail; shopt -s inherit_errexit\n. {PROJECT}/nix/compiler_cache.sh\n"
            'export CCACHE_DIR=$out; compilerCache ccache; ccache "$@" -o "$out.o"'
        )
        out = str(self.folder / "cache")
        env = {"PATH": os.environ["PATH"], "HOME": "/homeless-shelter", "out": out}
        env |= {"NIX_BUILD_TOP": str(self.folder), "FOLDER": str(self.folder), **variables}
        argv = ("bash", "-c", script, "bash", *argv)
        subprocess.run(argv, check=True, env=env, cwd=self.folder, capture_output=True)
        return Path(f"{out}.o").read_bytes()

    def wrapper(self, name: str, text: str) -> str:
        """A compiler wrapper with the time stamp that all files of a Nix store have."""
        path = self.folder / name / "g++"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        os.utime(path, (1, 1))
        return str(path)


FLAGS = 'exec g++ $NIX_CFLAGS_COMPILE "$@"'  # a wrapper reads them from the environment


def two_flags(compiling: Compiling) -> Iterator[bytes]:
    compiler = compiling.wrapper("one", FLAGS)
    for flags in ("-O0", "-O2"):
        argv = (compiler, "-c", "a.cpp", "-DFACTOR=3")
        yield compiling.object(*argv, CXX=compiler, NIX_CFLAGS_COMPILE=flags)


def two_search_paths(compiling: Compiling) -> Iterator[bytes]:
    """Only the output of the preprocessor tells; without it the paths are in the key."""
    folder = compiling.folder
    (folder / "a.cpp").write_text("#include <factor.h>\nint f(int x) { return x * FACTOR; }\n")
    os.utime(folder / "a.cpp", (1, 1))
    compiler = compiling.wrapper("one", FLAGS)
    for number in ("2", "3"):
        (folder / number).mkdir()
        (folder / number / "factor.h").write_text(f"#define FACTOR {number}\n")
        os.utime(folder / number / "factor.h", (1, 1))
        flags = f"-isystem {folder}/{number}"
        yield compiling.object(compiler, "-c", "a.cpp", CXX=compiler, NIX_CFLAGS_COMPILE=flags)


def two_wrappers(compiling: Compiling) -> Iterator[bytes]:
    """Two wrappers of a store have one time and one size."""
    for level in ("0", "2"):
        compiler = compiling.wrapper(level, f'exec g++ -O{level} "$@"')
        shutil.rmtree(compiling.folder / "bin", ignore_errors=True)
        yield compiling.object(compiler, "-c", "a.cpp", "-DFACTOR=3", CXX=compiler)


def two_flags_of_nvcc(compiling: Compiling, variable: str) -> Iterator[bytes]:
    argv = ("nvcc", "-c", "a.cu", "-DFACTOR=3", "-arch=sm_90")
    for flags in ("-lineinfo", "-G"):
        yield compiling.object(*argv, **{variable: flags})


PROGRAMS = pytest.mark.skipif(
    not (shutil.which("ccache") and shutil.which("g++")), reason="no ccache or no g++"
)
NVCC = (
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc"),
)


@PROGRAMS
@pytest.mark.parametrize(
    "made",
    [
        two_flags,
        two_search_paths,
        two_wrappers,
        pytest.param(partial(two_flags_of_nvcc, variable="NVCC_PREPEND_FLAGS"), marks=NVCC),
        pytest.param(partial(two_flags_of_nvcc, variable="NVCC_APPEND_FLAGS"), marks=NVCC),
    ],
)
def test_what_decides_about_an_object_is_in_the_key_of_the_cache(
    tmp_path: Path, made: Callable[[Compiling], Iterator[bytes]]
) -> None:
    """ccache alone returns the first object again."""
    first, second = made(Compiling(tmp_path))
    assert first != second
