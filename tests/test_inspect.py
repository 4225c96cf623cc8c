"""The command `invoke inspect`: real folders, and results of a real Nix store."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from built_files import (
    AVX2,
    compile_library,
    inspect,
    looked,
    part_of,
    texts,
    variant_of,
    with_config,
)
from conftest import Project, error_line, needs_nix
from packaging.version import Version

from build_pytorch.inspect import closure, inspection
from build_pytorch.inspect.inspection import Inspection
from build_pytorch.matrix.model import Matrix

# --- programs that are missing ---


def test_without_objdump_arm_code_is_not_inspected(
    project: Project, fleet: Matrix, tmp_path: Path
) -> None:
    flags = fleet.cpus["armv8_2"].flags
    compile_library(tmp_path / "lib", flags, platform="aarch64-linux")
    argv = ["sm110-armv8_2", "--path", str(tmp_path / "lib"), "--json"]
    done = inspect(project, *argv, env={"PATH": str(tmp_path)})
    part = part_of(done, "instructions")
    assert part["state"] == "skipped"
    assert "install GNU binutils" in part["reason"]


def test_x86_code_is_inspected_without_other_programs(
    fleet: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_library(tmp_path / "lib", fleet.cpus["avx2"].flags)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert looked("instructions", "cpu-avx2", tmp_path / "lib")["state"] == "passed"


# --- configuration ---


def test_everything_passes_where_the_files_are_those_of_the_variant(
    project: Project, tmp_path: Path
) -> None:
    with_config(tmp_path / "lib", AVX2)
    done = inspect(project, "cpu-avx2", "--path", str(tmp_path / "lib"))
    assert done.returncode == 0, done.stdout
    assert not (project.root / ".build-pytorch/ledger.jsonl").exists()


def test_one_progress_line_is_ended_before_the_next(project: Project, tmp_path: Path) -> None:
    with_config(tmp_path / "lib", AVX2)
    reader, terminal = pty.openpty()
    argv = [sys.executable, "-m", "invoke", "inspect", "cpu-avx2", "--path", str(tmp_path / "lib")]
    env = {**os.environ, "TERM": "xterm"}
    subprocess.run(
        argv, cwd=project.root, env=env, stdout=subprocess.PIPE, stderr=terminal, check=True
    )
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the terminal has no writer any more
        while part := os.read(reader, 1 << 16):
            shown += part
    os.close(reader)
    assert b"disassembling libtorch_cpu.so" in shown
    cursor = re.findall(rb"\x1b\[\?25([hl])", shown)  # hidden while a line is shown
    assert cursor == [b"l", b"h"] * (len(cursor) // 2)
    assert len(cursor) > 2


@pytest.mark.parametrize(
    ("flags", "version", "cuda", "found"),
    [
        (AVX2, "2.9.1", "None", "PyTorch 2.9.1"),
        (AVX2, "2.10.0", "'13.0'", "CUDA 13.0"),
        (["-mavx2", "-mfma"], "2.10.0+x", "None", "CXX_FLAGS without -mf16c"),
    ],
)
def test_the_configuration_in_the_files_is_compared(
    tmp_path: Path, flags: list[str], version: str, cuda: str, found: str
) -> None:
    with_config(tmp_path / "lib", flags, version, cuda)
    part = looked("config", "cpu-avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert found in texts(part)


@pytest.mark.parametrize(
    ("variant", "flag", "severity"),
    [
        ("sm90-avx2", "-DLIBKINETO_NOCUPTI", "error"),
        ("sm90-avx2", "-DLIBKINETO_NOCUPTI=ON", "error"),
        ("sm90-avx2", "-DLIBKINETO_NOROCTRACER", ""),
        ("cpu-avx2", "-DLIBKINETO_NOCUPTI", ""),
    ],
)
def test_a_kineto_without_cupti_is_wrong_in_a_gpu_variant(
    tmp_path: Path, variant: str, flag: str, severity: str
) -> None:
    cuda = "None" if variant.startswith("cpu") else "'13.0'"
    with_config(tmp_path / "lib", AVX2, cuda=cuda, more=[flag])
    part = looked("config", variant, tmp_path / "lib")
    assert [f["severity"] for f in part["findings"]] == ([severity] if severity else [])
    assert ("torch.profiler records no CUDA activity" in str(part["findings"])) == bool(severity)


def test_from_2_14_on_cupti_shows_in_the_flags() -> None:
    from build_pytorch.inspect import config

    for flags, count in (("-mavx2 -DHAS_CUPTI", 0), ("-mavx2", 1)):
        found = config._without_cupti("x", flags.split(), Version("2.14.0"))  # noqa: SLF001
        assert [finding.severity for finding in found] == ["warning"] * count


def test_a_long_string_around_the_flags_is_cut(tmp_path: Path) -> None:
    with_config(tmp_path / "lib", AVX2, more=["x" * 200_000])
    part = looked("config", "cpu-avx2", tmp_path / "lib")
    assert len(part["figures"]["cxx_flags"]) < 200_000


# --- results of Nix ---


def empty_store(folder: Path) -> dict[str, str]:
    return {
        "NIX_REMOTE": "local",
        "NIX_STORE_DIR": f"{folder}/nix/store",
        "NIX_STATE_DIR": f"{folder}/nix/state",
        "NIX_LOG_DIR": f"{folder}/nix/log",
        "NIX_CONFIG": "substituters =\nbuild-users-group =\nsandbox = false",
        "XDG_CACHE_HOME": f"{folder}/cache",
    }


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    """An empty Nix store of its own."""
    return empty_store(tmp_path)


PRINTED = """TORCH
2.10.0
PyTorch built with:
  - GCC 14.3
  - CPU capability usage: AVX2
  - Build settings: BLAS_INFO=open, CXX_FLAGS= -mavx2 -mfma -mf16c -O2, USE_CUDA=0, \

"""


def say(folder: Path, printed: str, fails: str = "") -> Path:
    """The program that stands in for a variant's Python: what it prints, or how it fails."""
    (folder / "said").write_text(printed)
    stand_in = folder / "stand-in.sh"
    stand_in.write_text(
        '[ "$PYTHONNOUSERSITE$PYTHONSAFEPATH$PYTHONHOME" = 11 ] || exit 9\n'
        f"{fails or ':'}\nsed s,TORCH,${{PYTHONPATH%%:*}}/torch/__init__.py, {folder}/said\n"
    )
    return stand_in


def build(
    root: Path,
    store: dict[str, str],
    folder: Path,
    needs: list[str],
    variant: str = "cpu-avx2",
    python: str = "",
) -> None:
    """Build a result that holds a folder's libraries and refers to store paths of some names."""
    if python:
        needs = [*needs, "python3-3.13.9"]
    stand_in = say(folder.parent, python)
    expression = f"""
let
  make = name: script: derivation {{
    inherit name; system = builtins.currentSystem;
    builder = "/bin/sh"; args = [ "-c" script ]; PATH = "{os.environ["PATH"]}";
  }};
  needs = map (name: make name "mkdir -p $out/bin; echo ${{name}} > $out/name; \\
    case ${{name}} in python3-*) printf '#!/bin/sh\\n. %s' {stand_in} > $out/bin/python3.13; \\
    chmod +x $out/bin/python3.13;; esac") [ {" ".join(f'"{name}"' for name in needs)} ];
in make "result" ''
  mkdir -p $out/lib/python3.13/site-packages/torch
  cp -rP {folder} $out/lib/python3.13/site-packages/torch/lib
  echo ${{toString needs}} > $out/needs
''
"""
    link = root / f"result-{variant_of(variant).package}"
    subprocess.run(
        ["nix-build", "-E", expression, "-o", str(link)],
        check=True,
        capture_output=True,
        env={**os.environ, **store},
    )


def result_of(root: Path, store: dict[str, str], variant: str = "cpu-avx2") -> Inspection:
    """The inspection of a built result, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.items():
            patch.setenv(name, value)
        return inspection.inspect_result(root, variant_of(variant), lambda *_: None)


def named(result: Inspection, part_id: str) -> dict[str, Any]:
    (part,) = [part for part in result.parts if part.id == part_id]
    return dict(msgspec.to_builtins(part))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a result of cpu-avx2, and its store. `say` sets what its Python prints."""
    folder = tmp_path_factory.mktemp("built")
    store = empty_store(folder)
    compile_library(folder / "lib", AVX2)
    build(folder, store, folder / "lib", [], python=PRINTED)
    return folder, store


def printing(
    built: tuple[Path, dict[str, str]], printed: str, fails: str = ""
) -> tuple[Inspection, dict[str, Any]]:
    """The inspection of the result, and its part for the configuration."""
    folder, store = built
    say(folder, printed, fails)
    result = result_of(folder, store)
    return result, named(result, "config")


@needs_nix
def test_a_result_is_inspected_and_recorded_with_the_digest_of_its_recipe(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    from build_pytorch.base import digest
    from build_pytorch.results.ledger import Ledger, Tested

    compile_library(tmp_path / "lib", AVX2)
    build(project.root, store, tmp_path / "lib", [], python=PRINTED)
    recipe = project.recipe("cpu-avx2")
    remember(project, digest.of_bytes(recipe.read_bytes()))
    remember(project, "sha256:of-a-recipe-that-differs-in-a-comment")
    done = inspect(project, "cpu-avx2", env=store)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, event = Ledger(project.root).events()
    assert isinstance(event, Tested)
    assert (event.by, event.outcome, event.variant) == ("inspect", "passed", "cpu-avx2")
    assert event.digest == digest.of_bytes(recipe.read_bytes())
    assert Path(event.output) == (project.root / f"result-{recipe.stem}").resolve()
    report = json.loads((project.root / event.report).read_text())
    assert report["outcome"] == "passed"
    assert [p["id"] for p in report["parts"]] == [
        "files", "device-code", "instructions", "config", "closure",
    ]  # fmt: skip


def remember(project: Project, digest: str) -> None:
    """A line of the ledger: the result was built from a recipe with this digest."""
    from build_pytorch.results.ledger import Ended, Ledger, now

    output = str((project.root / f"result-{project.recipe('cpu-avx2').stem}").resolve())
    Ledger(project.root).append(
        Ended(
            at=now(), release="cuda13_0", variant="cpu-avx2", digest=digest, attempt="1",
            outcome="built", seconds=1.0, outputs=(output,),
        )
    )  # fmt: skip


@needs_nix
def test_a_link_out_of_the_result_is_a_finding(store: dict[str, str], tmp_path: Path) -> None:
    compile_library(tmp_path / "lib", AVX2)
    compile_library(tmp_path / "elsewhere", AVX2, name="libc10.so")
    (tmp_path / "lib/libc10.so").symlink_to(tmp_path / "elsewhere/libc10.so")
    (tmp_path / "lib/libtorch.so").symlink_to("libtorch_cpu.so")
    build(tmp_path, store, tmp_path / "lib", [])
    part = named(result_of(tmp_path, store), "files")
    assert part["state"] == "failed"
    assert list(part["failed"]) == ["libc10.so"]
    assert texts(part) == f"a link that leads out of the Nix store: {tmp_path}/elsewhere/libc10.so"


@needs_nix
def test_a_result_of_an_unknown_recipe_is_inspected_and_not_recorded(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project.root, store, tmp_path / "lib", [], python=PRINTED)
    done = inspect(project, "cpu-avx2", env=store)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not recorded: the ledger has no recipe for this result" in done.stdout
    assert "run `invoke build cpu-avx2`, which records" in done.stdout
    assert not (project.root / ".build-pytorch/ledger.jsonl").exists()
    status = project.run("invoke", "status", "cpu-avx2", "--json", env=store)
    assert json.loads(status.stdout)["variants"][0]["built"] == "unknown"


@needs_nix
@pytest.mark.parametrize(
    ("said", "fails", "found"),
    [
        (PRINTED, "echo 'ImportError: libc10.so: cannot open' >&2; exit 1", "libc10.so"),
        (PRINTED.replace("TORCH", "/usr/lib/torch/__init__.py"), "", "another torch: /usr/lib"),
        (PRINTED, "kill -ILL $$", "its Python cannot import torch: exit code -4"),
    ],
)
def test_a_torch_that_cannot_be_imported_fails(
    built: tuple[Path, dict[str, str]], said: str, fails: str, found: str
) -> None:
    result, part = printing(built, said, fails)
    assert result.outcome == "failed"
    assert found in texts(part)


@needs_nix
def test_a_result_without_a_python_is_skipped(store: dict[str, str], tmp_path: Path) -> None:
    with_config(tmp_path / "lib", AVX2)
    build(tmp_path, store, tmp_path / "lib", [])
    result = result_of(tmp_path, store)
    assert result.outcome == "skipped"
    assert named(result, "config")["state"] == "skipped"
    assert "no Python 3.13" in named(result, "config")["reason"]


@needs_nix
@pytest.mark.parametrize(
    ("old", "new", "unknown"),
    [
        ("CXX_FLAGS=", "OTHER_FLAGS=", "CXX_FLAGS not found"),
        ("2.10.0\n", "\n", "the version not found"),
    ],
)
def test_an_unknown_setting_leaves_the_part_undecided(
    built: tuple[Path, dict[str, str]], old: str, new: str, unknown: str
) -> None:
    result, part = printing(built, PRINTED.replace(old, new, 1))
    assert result.outcome == "skipped"
    assert part["state"] == "skipped"
    assert unknown in part["reason"]


@needs_nix
@pytest.mark.parametrize(
    ("flag", "fits"),
    [
        ("-mavx512f", False),
        ("-march=native", False),
        ("-march=x86-64-v4", False),
        ("-mnosuchthing", False),
        ("-mavx", True),
        ("-mtune=generic", True),
        ("-mno-avx512f", True),
    ],
)
def test_flags_above_the_isa_are_found(
    built: tuple[Path, dict[str, str]], flag: str, fits: bool
) -> None:
    _, part = printing(built, PRINTED.replace("-mfma", f"-mfma {flag}"))
    assert part["state"] == ("passed" if fits else "failed")
    assert texts(part) == ("" if fits else f"CXX_FLAGS with {flag}")


@needs_nix
def test_one_bad_result_is_a_row_and_the_others_are_inspected(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project.root, store, tmp_path / "lib", [], python=PRINTED)
    (tmp_path / "other/lib").mkdir(parents=True)
    build(project.root, store, tmp_path / "other/lib", [], "cpu-avx512")
    (project.root / "result-pytorch-python313-cpu-avx512vnni").symlink_to("result-pytorch")
    loop = project.root / "result-pytorch-python313-cpu-avx512bf16"
    loop.symlink_to(loop.name)
    done = inspect(project, "cpu-*", "--json", env=store)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    rows = {row["variant"]: row for row in json.loads(done.stdout)["variants"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "cpu-avx2": "passed",
        "cpu-avx512": "failed",
        "cpu-avx512bf16": "not run",
        "cpu-avx512vnni": "not run",
    }
    assert "files: libtorch_cpu.so: not in " in rows["cpu-avx512"]["reasons"][0]
    assert "does not lead into the Nix store" in rows["cpu-avx512bf16"]["reasons"][0]


@needs_nix
def test_the_variants_own_python_is_run(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project.root, store, tmp_path / "lib", [], python=PRINTED.replace("2.10.0", "2.9.1"))
    done = inspect(project, "cpu-avx2", "--json", env=store)
    part = part_of(done, "config")
    assert done.returncode == 1
    assert part["figures"]["from"] == "torch.__config__.show()"
    assert texts(part) == "PyTorch 2.9.1"


@needs_nix
def test_a_result_of_an_older_recipe_is_recorded_for_that_recipe(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    from build_pytorch.results.ledger import Ledger, Tested

    compile_library(tmp_path / "lib", AVX2)
    build(project.root, store, tmp_path / "lib", [])
    remember(project, "sha256:older")
    remember(project, "sha256:old")
    inspect(project, "cpu-avx2", env=store)
    *_, event = Ledger(project.root).events()
    assert isinstance(event, Tested)
    assert event.digest == "sha256:old"


@needs_nix
@pytest.mark.parametrize(
    ("variant", "needs", "found"),
    [
        ("sm90-avx2", ["cuda13.0-cuda_cudart-13.0.96", "cuda13.0-libcublas-13.1.0.3"], ""),
        ("sm90-avx2", ["cuda_cudart-13.0.96", "cuda12.8-libcublas-12.8.4.1"], "CUDA 12.8"),
        ("sm90-avx2", ["cuda_cudart-13.0.96", "cuda_nvrtc-12.9.86"], "CUDA 12.9"),
        ("sm90-avx2", ["zlib-1.3"], "no CUDA at all"),
        ("cpu-avx2", ["zlib-1.3"], ""),
        ("cpu-avx2", ["libcublas-13.1.0.3"], "CUDA in a CPU-only variant: libcublas-13.1.0.3"),
    ],
)
def test_a_closure_holds_the_cuda_of_its_variant_and_no_other(
    store: dict[str, str], tmp_path: Path, variant: str, needs: list[str], found: str
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(tmp_path, store, tmp_path / "lib", needs, variant)
    part = named(result_of(tmp_path, store, variant), "closure")
    assert part["state"] == ("failed" if found else "passed")
    assert found in texts(part)


@needs_nix
def test_a_closure_above_its_budget_is_found(store: dict[str, str], tmp_path: Path) -> None:
    """nix-store adds 3 GiB to each size: files of that size take 15 s to build."""
    compile_library(tmp_path / "lib", AVX2)
    build(tmp_path, store, tmp_path / "lib", [])
    (tmp_path / "tools").mkdir()
    program = tmp_path / "tools/nix-store"
    program.write_text(
        '#!/bin/sh\ncase $2 in --size) add=$((3 << 30)) ;; *) exec REAL "$@" ;; esac\n'
        'REAL "$@" | while read -r size; do echo $((size + add)); done\n'.replace(
            "REAL", str(shutil.which("nix-store"))
        )
    )
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    part = named(result_of(tmp_path, {**store, "PATH": path}), "closure")
    assert part["state"] == "failed"
    assert "3.0 GiB; the largest: result 3.0" in texts(part)
    own = sum(file.stat().st_size for file in (tmp_path / "lib").iterdir())
    assert own < part["figures"]["bytes"] - (3 << 30) < 2 * own


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("cuda13.0-cuda_cudart-13.0.96", "13.0"),
        ("cuda_cudart-13.0.96-lib", "13.0"),
        ("cuda-merged-12.8", "12.8"),
        ("libnvjitlink-13.0.88", "13.0"),
        ("libcublas-13.1.0.3", None),  # of CUDA 13.0 Update 2
        ("libcufft-12.0.0.61", None),  # of CUDA 13.0
        ("cuda_compat-13.0.1", None),  # a driver's
        ("cudnn-9.13.0.50", None),
    ],
)
def test_the_name_of_a_store_path_has_its_cuda_version(name: str, version: str | None) -> None:
    found = closure.cuda_versions([f"/nix/store/{'0' * 32}-{name}"])
    assert list(found) == ([version] if version else [])


# --- bad input ---


def test_a_variant_that_was_not_built_is_one_line_with_the_command(project: Project) -> None:
    done = inspect(project, "cpu-avx2")
    assert done.returncode == 3
    assert "run `invoke build cpu-avx2`" in done.stdout
    assert "cpu-avx2  not run" in done.stdout
    assert "passed" not in done.stdout


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["cpu-avx2", "--path", "nowhere"], "no such folder"),
        (["cpu-avx2", "--path", "docs"], "no libtorch_cpu.so in it"),
        (["cpu-*", "--path", "docs"], "the files of one variant"),
        (["cpu-avx3"], 'did you mean "cpu-avx2"?'),
        ([], "no variant given"),
    ],
)
def test_bad_input_is_one_line(project: Project, argv: list[str], says: str) -> None:
    before = project.snapshot()
    done = inspect(project, *argv)
    assert done.returncode == 2
    assert says in error_line(done)
    assert project.snapshot() == before
