"""Shared builds with real compilers, in Nix's sandbox, through the recipes and release.nix.

They take minutes: `nox -s bench-sharing` runs them. BUILD_PYTORCH_CCACHE names a folder with
bin/ccache, version 4.10 or newer, and what it needs beside /usr and /lib.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from conftest import ONE, PROJECT
from world import Site, served

from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader

CCACHE: Final = os.environ.get("BUILD_PYTORCH_CCACHE", "")
HERE: Final = PROJECT / "tests/shared_project"
ISAS: Final = ("avx2", "avx512", "avx512vnni", "avx512bf16")
GPUS: Final = ("sm80", "sm90", "sm120", "sm100", "sm86", "sm89", "sm103", "sm110", "sm121")
CXX, CUDA = 25, 15
"""Objects of a GPU variant: 17 + 6 + 1 C and C++, and one with the list of architectures."""

pytestmark = pytest.mark.skipif(not CCACHE, reason="nox -s bench-sharing")


class Farm:
    """A checkout and a store in which release.nix is built."""

    def __init__(self, root: Path, site: Site) -> None:
        self.root = root
        self.site = site

    def build(self, names: list[str], **arguments: str) -> dict[str, tuple[str, Path, float]]:
        """Build attributes one after the other. Return log, output and seconds of each."""
        found = {}
        for name in names:
            words = [w for key, value in arguments.items() for w in ("--arg", key, value)]
            began = time.monotonic()
            argv = ["nix-build", "release.nix", "-A", name, "--no-out-link", "-j1", *words]
            output = self.site.nix(*argv, "--cores", "2", env={"PWD": str(self.root)})
            seconds = time.monotonic() - began
            path = Path(output.split()[-1])
            found[name] = (self.site.nix("nix-store", "--read-log", str(path)), path, seconds)
        return found


def package(gpu: str, isa: str) -> str:
    return f"pytorch-python313-{'cuda13_0-' if gpu != 'cpu' else ''}{gpu}-{isa}"


def counts(log: str) -> tuple[int, int]:
    found = re.search(r"compiler cache: (\d+) hits, (\d+) misses", log)
    assert found, log[-2000:]
    return int(found[1]), int(found[2])


def seconds_of(log: str) -> float:
    found = re.search(r"compiled in ([0-9.]+) s", log)
    assert found, log[-2000:]
    return float(found[1])


def objects(output: Path) -> dict[str, str]:
    lines = [line.split() for line in (output / "objects").read_text().splitlines()]
    return {name: digest for digest, name in lines}


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    folder = tmp_path_factory.mktemp("farm")
    root = folder / "checkout"
    for name in (".flox", "nix"):
        shutil.copytree(PROJECT / name, root / name)
    shutil.copy(PROJECT / "release.nix", root)
    ccache = Path(CCACHE).resolve()
    places = f"/bin /usr /lib /lib64 /etc/alternatives {ccache} {HERE}"
    config = f"sandbox = true\nsandbox-fallback = false\nsandbox-paths = {places}"
    site = Site(folder, script=HERE / "build.sh", arguments=(ccache, HERE), config=config)
    old = Path.cwd()
    os.chdir(root)
    try:
        with served(site):
            yield Farm(root, site)
    finally:
        os.chdir(old)


@pytest.fixture
def cache() -> Iterator[Path]:
    """A folder with a name that matrix.toml allows; pytest's own have others."""
    path = Path(tempfile.mkdtemp(prefix="cache").replace("_", "x") + "x")
    path.mkdir()
    yield path
    shutil.rmtree(path)


def test_all_isas_and_all_architectures(farm: Farm) -> None:
    """Shared builds take a fraction of the time, hit as predicted, and yield the same objects.

    Squares of the first ones are measured as well. n x n save at most a factor of n, because n of
    the n * n builds compile each kind of objects.
    """
    variants = [(gpu, isa) for gpu in GPUS for isa in ISAS]
    names = [package(gpu, isa) for gpu, isa in variants]
    seeds = [f"seed-cuda13_0-x86_64-linux-{key}" for key in (*ISAS, *GPUS)]
    plain = farm.build(names)
    made = farm.build(seeds, share="true")
    shared = farm.build(names, share="true")
    for seed, (log, output, _) in made.items():
        is_cuda = seed.endswith(GPUS)
        assert counts(log) == (0, CUDA if is_cuda else CXX), seed
        assert not list(output.glob("*.so"))
    report = {}
    for name in names:
        log, output, _ = shared[name]
        hits, misses = counts(log)
        before, after = objects(plain[name][1]), objects(output)
        same = {key for key in before if before[key] == after[key]}
        host = {key for key in before if not key.endswith(".cu.o")}
        assert host <= same, sorted(host - same)
        assert (hits + misses, misses in {0, 1}) == (CXX + CUDA, True), (name, hits, misses)
        if misses:
            assert "compiled here: " in log
            assert "module.cpp" in log.partition("compiled here: ")[2].splitlines()[0]
        report[name] = [hits, misses, seconds_of(plain[name][0]), seconds_of(log)]
    assert [row[1] for row in report.values()].count(1) >= len(names) - len(ISAS)
    of_seeds = {name: seconds_of(log) for name, (log, *_) in made.items()}
    print(json.dumps({"variants": report, "seeds": of_seeds}))
    for isas, gpus, least in ((3, 3, 1.5), (4, 4, 2.0), (len(ISAS), len(GPUS), 3.5)):
        block = [report[package(gpu, isa)] for gpu in GPUS[:gpus] for isa in ISAS[:isas]]
        alone = sum(row[2] for row in block)
        keys = (*ISAS[:isas], *GPUS[:gpus])
        compiled = sum(of_seeds[f"seed-cuda13_0-x86_64-linux-{key}"] for key in keys)
        together = compiled + sum(row[3] for row in block)
        figures = {"alone": alone, "seeds": compiled, "shared": together}
        print(json.dumps({"isas": isas, "architectures": gpus, **figures}))
        assert alone / together >= least, figures


def test_reproducible_cuda_objects(farm: Farm) -> None:
    """With the flags for it, CUDA objects from a seed are those of a build without sharing."""
    name = package("sm90", "avx512vnni")
    flags = "-frandom-seed=build-pytorch -objtemp"
    (farm.root / "release.nix").rename(farm.root / "all.nix")
    (farm.root / "release.nix").write_text(
        f"""{{ share ? false, reproducibleCuda ? false }}@args:
        let all = import ./all.nix args; in if share then all else {{
          {name} = all.{name}.overrideAttrs (old: {{
            preBuild = "export NVCC_APPEND_FLAGS='{flags}'\n" + old.preBuild;
          }});
        }}"""
    )
    plain = objects(farm.build([name])[name][1])
    log, output, _ = farm.build([name], share="true", reproducibleCuda="true")[name]
    assert counts(log) == (CXX + CUDA, 0)
    assert objects(output) == plain


def test_a_shared_folder(farm: Farm, tmp_path: Path, cache: Path) -> None:
    """One derivation everywhere: with the folder, without it, and again from what it has.

    `nix-build --check` builds once more and fails if the output differs.
    """
    text = ONE.replace("cuda_host_flags = false", f'cache = "{cache}"\ncuda_host_flags = false', 1)
    recipe = next(
        body
        for path, body in recipes.render(matrix_reader.parse(text)).items()
        if path.endswith("-cpu-avx2.nix")
    )
    (tmp_path / "recipe.nix").write_text(recipe)
    argv = ["nix-build", str(tmp_path / "recipe.nix"), "--no-out-link", "-j1", "--cores", "2"]

    def log(*more: str) -> str:
        output = farm.site.nix(*argv, *more, env={"PWD": str(tmp_path)}).split()[-1]
        return farm.site.nix("nix-store", "--read-log", output)

    assert "compiler cache" not in log()
    assert "compiler cache" not in log("--check", "--option", "extra-sandbox-paths", "/absent/x?")
    mounted = ("--check", "--option", "extra-sandbox-paths", f"{cache}?")
    hits, misses = counts(log(*mounted))
    assert (hits, misses > 20) == (0, True)
    assert counts(log(*mounted)) == (misses, 0)
    assert list(cache.iterdir())


HOOK: Final = """
let
  fake = { overrideAttrs = change: change { meta.platforms = [ ]; }; };
  nixpkgs.ccache = "CCACHE";
  shared = import SHARING {
    recipes.p = fake; plain.p = fake;
    seeds.s = { kind = "cxx"; package = "p"; inherit nixpkgs; };
    seedsOf.p = [ ];
  };
in shared.s.preBuild
"""


class Compiling:
    """Compiles one file twice in one cache, as a seed does: with our hook, or with ccache alone."""

    def __init__(self, folder: Path, *, hooked: bool) -> None:
        self.folder = folder
        text = HOOK.replace("CCACHE", CCACHE).replace("SHARING", str(PROJECT / "nix/sharing.nix"))
        argv = ["nix-instantiate", "--eval", "--json", "-E", text]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        self.hook = json.loads(done.stdout) if hooked else "export CCACHE_DIR=$out"
        (folder / "a.cpp").write_text("int f(int x) { return x * FACTOR; }\n")
        (folder / "a.cu").write_text("__global__ void f(int *x) { *x *= FACTOR; }\n")

    def object(self, *argv: str, **variables: str) -> bytes:
        script = f"set -e -o pipefail; shopt -s inherit_errexit\n{self.hook}\n"
        script += f'{CCACHE}/bin/ccache "$@" -o "$out.o"'
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


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize(
    "made", [two_flags, two_search_paths, two_wrappers, two_flags_of_nvcc, APPENDED]
)
def test_what_decides_about_an_object_is_in_the_key_of_the_cache(
    tmp_path: Path, made: Callable[[Compiling], Iterator[bytes]], *, hooked: bool
) -> None:
    first, second = made(Compiling(tmp_path, hooked=hooked))
    assert (first != second) is hooked
