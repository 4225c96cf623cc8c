"""The option `cache`: recipes that use a compiler cache where builds see its folder."""

from __future__ import annotations

import functools
import grp
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, needs_nix, write_recipes
from msgspec.structs import replace

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build import build_obstacles
from build_pytorch.build.backends import BuildAction, BuildBackend, BuildSettings, Step
from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix.store import NixSettings
from build_pytorch.verify import verification

TEXT = ONE
GROUP = grp.getgrgid(os.getgid()).gr_name


def with_cache(folder: str) -> Matrix:
    old = "max_jobs = 32\n"
    assert old in TEXT
    return matrix_reader.parse(TEXT.replace(old, f'cache = "{folder}"\n{old}', 1))


def test_recipes_have_the_block_only_with_the_option(matrix: Matrix) -> None:
    plain, cached = (recipes.render(m) for m in (matrix, with_cache("/var/cache/x")))
    for variant in matrix.variants:
        assert "ccache" not in plain[variant.path].lower()
        assert "if [ -w /var/cache/x ] " in cached[variant.path]


@needs_nix
def test_the_block_is_all_that_the_option_changes(tmp_path: Path) -> None:
    """The check that compares with nixpkgs allows exactly the block, with the right folder."""
    matrix = with_cache("/var/cache/x")
    variants = [v for v in matrix.variants if v.id in {"sm90-avx2", "cpu-avx2"}]
    write_recipes(tmp_path, matrix)
    only = ["eval-unchanged", "hook-files"]
    found = verification.verify(matrix, tmp_path, variants=variants, only=only).findings
    assert found == []


@needs_nix
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-w /var/cache/x ]", "-w /var/cache/y ]"),
        ("CCACHE_DIR=/var/cache/x", "CCACHE_DIR=/tmp"),
        ("compilerCache() {", "compilerCache() { true;"),
        ('"\\ncompilerCacheCounts\\n"', '"\\nmake check\\n"'),
        ('"/build-pytorch"', '"/other"'),
    ],
)
def test_another_block_is_an_error(tmp_path: Path, old: str, new: str) -> None:
    matrix = with_cache("/var/cache/x")
    variants = [v for v in matrix.variants if v.id == "cpu-avx2"]
    write_recipes(tmp_path, matrix, lambda text: text.replace(old, new))
    assert old in recipes.render(matrix)[variants[0].path]
    result = verification.verify(matrix, tmp_path, variants=variants, only=["eval-unchanged"])
    assert [finding.check for finding in result.findings] == ["eval-unchanged"]


@pytest.mark.parametrize("value", ["cache", "/var/cache/../etc", "/a b", "/", "/x/"])
def test_the_folder_must_be_absolute(value: str) -> None:
    with pytest.raises(BuildPytorchError, match="cache"):
        with_cache(value)


def notes(folder: Path, host: NixSettings, builders: str = "") -> list[str]:
    matrix = with_cache(str(folder))
    variant = next(v for v in matrix.variants if v.id == "cpu-avx2")
    step = Step(package=variant, action=BuildAction.BUILD, reason="", digest="")
    backend = BuildBackend("nix", BuildSettings(root=Path(), builders=builders), host)
    found = list(build_obstacles.cache_notes([step], backend))
    assert all(note.startswith(f"cache {folder}: ") for note in found)
    return [note.partition(": ")[2] for note in found]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that builds may write into; pytest's own have names that the matrix refuses."""
    with tempfile.TemporaryDirectory(prefix="cache", dir="/tmp") as name:
        path = Path(re.sub("[^a-zA-Z0-9/]", "x", name) + "x")
        path.mkdir()
        path.chmod(0o2770)
        yield path
        shutil.rmtree(path)


def host(folder: Path) -> NixSettings:
    return NixSettings(
        ("x86_64-linux",), (), sandbox_paths=(f"{folder}?",), build_users_group=GROUP
    )


def test_a_folder_that_builds_use(folder: Path) -> None:
    for path in (f"{folder}?", f"{folder}", f"{folder}=/elsewhere", f"{folder.parent}?"):
        found = notes(folder, replace(host(folder), sandbox_paths=("/bin/sh", path)))
        assert found == ["builds use it; any build can put wrong objects into it"]
    (says,) = notes(folder, host(folder), "ssh://x")
    assert "each builder uses its own" in says


def test_what_keeps_builds_from_using_the_folder(folder: Path) -> None:
    """Each problem is named with its remedy."""
    good = host(folder)
    elsewhere = replace(good, sandbox_paths=(f"{folder}x?", "/bin/sh=/b"))
    for settings, wanted in (
        (elsewhere, f"add `extra-sandbox-paths = {folder}?` to nix.conf"),
        (replace(good, sandbox=False), "set sandbox = true"),
        (replace(good, features=None), "unknown whether it is used"),
    ):
        (says,) = notes(folder, settings)
        assert wanted in says
    folder.chmod(0o755)
    (says,) = notes(folder, good)
    assert f"chgrp {GROUP} {folder} && chmod 2770 {folder}" in says
    folder.chmod(0o2770)
    shutil.rmtree(folder)
    (says,) = notes(folder, good)
    assert f"install -d -m 2770 -g {GROUP} {folder}" in says
    folder.mkdir()


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


def two_flags(compiling: Compiling) -> Iterator[bytes]:
    """Flags that a wrapper reads from the environment."""
    compiler = compiling.wrapper("one", 'exec g++ $NIX_CFLAGS_COMPILE "$@"')
    for flags in ("-O0", "-O2"):
        argv = (compiler, "-c", "a.cpp", "-DFACTOR=3")
        yield compiling.object(*argv, CXX=compiler, NIX_CFLAGS_COMPILE=flags)


def two_search_paths(compiling: Compiling) -> Iterator[bytes]:
    """Search paths that a wrapper reads from the environment.

    Only the output of the preprocessor tells; without it the paths are in the key.
    """
    folder = compiling.folder
    (folder / "a.cpp").write_text("#include <factor.h>\nint f(int x) { return x * FACTOR; }\n")
    for number in ("2", "3"):
        (folder / number).mkdir()
        (folder / number / "factor.h").write_text(f"#define FACTOR {number}\n")
        os.utime(folder / number / "factor.h", (1, 1))
    os.utime(folder / "a.cpp", (1, 1))
    compiler = compiling.wrapper("one", 'exec g++ $NIX_CFLAGS_COMPILE "$@"')
    for number in ("2", "3"):
        flags = f"-isystem {folder}/{number}"
        yield compiling.object(compiler, "-c", "a.cpp", CXX=compiler, NIX_CFLAGS_COMPILE=flags)


def two_wrappers(compiling: Compiling) -> Iterator[bytes]:
    """Two wrappers of a store have one time and one size."""
    for level in ("0", "2"):
        compiler = compiling.wrapper(level, f'exec g++ -O{level} "$@"')
        shutil.rmtree(compiling.folder / "bin", ignore_errors=True)
        yield compiling.object(compiler, "-c", "a.cpp", "-DFACTOR=3", CXX=compiler)


def two_flags_of_nvcc(
    compiling: Compiling, variable: str = "NVCC_PREPEND_FLAGS"
) -> Iterator[bytes]:
    """Flags that nvcc reads from the environment."""
    argv = ("nvcc", "-c", "a.cu", "-DFACTOR=3", "-arch=sm_90")
    for flags in ("-lineinfo", "-G"):
        yield compiling.object(*argv, **{variable: flags})


APPENDED = functools.partial(two_flags_of_nvcc, variable="NVCC_APPEND_FLAGS")


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
        pytest.param(two_flags_of_nvcc, marks=NVCC),
        pytest.param(APPENDED, marks=NVCC),
    ],
)
def test_what_decides_about_an_object_is_in_the_key_of_the_cache(
    tmp_path: Path, made: Callable[[Compiling], Iterator[bytes]]
) -> None:
    """ccache alone returns the first object again."""
    first, second = made(Compiling(tmp_path))
    assert first != second
