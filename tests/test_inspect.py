"""The command `invoke inspect`: real folders, and results of a real Nix store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from built_files import AVX2, compile_library, inspect, looked, part_of, texts, with_config
from conftest import Project, error_line, needs_nix

from build_pytorch.inspect import closure, device_code
from build_pytorch.matrix.model import Matrix

CUOBJDUMP = shutil.which("cuobjdump") or device_code.installed_with_pip()
needs_cuda = pytest.mark.skipif(
    not (shutil.which("nvcc") and CUOBJDUMP), reason="no nvcc with cuobjdump"
)

# --- device code ---


def nvcc(folder: Path, *codes: str, name: str = "libtorch_cuda.so") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "kernel.cu"
    source.write_text("__global__ void k(float* a) { *a = 1; }\nvoid f() { k<<<1, 1>>>(0); }\n")
    flags = [flag for code in codes for flag in ("-gencode", code)]
    argv = ["nvcc", "-shared", "-Xcompiler", "-fPIC", *flags, str(source), "-o", str(folder / name)]
    subprocess.run(argv, check=True)
    source.unlink()


def sm(number: str) -> str:
    return f"arch=compute_{number},code=sm_{number}"


def device(variant: str, folder: Path) -> dict[str, Any]:
    compile_library(folder, AVX2)
    return looked("device-code", variant, folder)


@needs_cuda
def test_device_code_for_the_architecture_passes(tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("90"), sm("90a"))
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "passed"
    assert part["figures"]["libtorch_cuda.so"]["elf"].keys() == {"sm_90", "sm_90a"}


@needs_cuda
def test_what_pytorch_adds_to_an_architecture_passes(tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("86"), sm("89"))
    assert device("sm86-avx2", tmp_path / "lib")["state"] == "passed"


@needs_cuda
@pytest.mark.parametrize(
    ("variant", "codes", "found"),
    [
        ("sm120-avx2", ("90",), "device code for sm_90"),
        ("sm90-avx2", ("90", "120"), "device code for sm_120"),
        ("sm120-avx2", ("120", "121"), "device code for sm_121"),
        ("sm80-avx2", ("80", "89"), "device code for sm_89"),
    ],
)
def test_device_code_for_another_architecture_is_found(
    tmp_path: Path, variant: str, codes: tuple[str, ...], found: str
) -> None:
    nvcc(tmp_path / "lib", *map(sm, codes))
    part = device(variant, tmp_path / "lib")
    assert part["state"] == "failed"
    assert found in texts(part)


@needs_cuda
def test_ptx_is_a_warning(tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("90"), "arch=compute_90,code=compute_90")
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "warning"
    assert "PTX of sm_90" in texts(part, "warning")


@needs_cuda
def test_what_magma_brings_is_a_warning_and_what_it_lacks_an_error(tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("90"))
    nvcc(tmp_path / "lib", sm("80"), sm("90"), name="libtorch_cuda_linalg.so")
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "warning"
    assert "sm_80" in texts(part, "warning")
    nvcc(tmp_path / "lib", sm("80"), name="libtorch_cuda_linalg.so")
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "failed"


@needs_cuda
def test_a_cpu_only_variant_holds_no_device_code(tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("90"))
    part = device("cpu-avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert "device code" in texts(part)


def test_a_cpu_only_build_of_a_gpu_variant_is_found_without_cuobjdump(tmp_path: Path) -> None:
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert "this PyTorch is CPU-only" in texts(part)


def without(tmp_path: Path, *missing: str) -> dict[str, str]:
    """A PATH with every program but some."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            target = folder / program.name
            if program.name not in missing and not target.is_symlink():
                target.symlink_to(program)
    return {"PATH": str(folder)}


@needs_cuda
def test_without_cuobjdump_the_part_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc(tmp_path / "lib", sm("90"))
    monkeypatch.setenv("PATH", without(tmp_path, "cuobjdump")["PATH"])
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "skipped"
    assert "cuobjdump: not found; install it from the CUDA toolkit" in part["reason"]


@needs_cuda
def test_cuobjdump_is_found_where_pip_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages/nvidia/cu13/bin"
    folder.mkdir(parents=True)
    (folder / "cuobjdump").symlink_to(str(CUOBJDUMP))
    nvcc(tmp_path / "lib", sm("90"))
    monkeypatch.setenv("PATH", without(tmp_path, "cuobjdump")["PATH"])
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "site-packages"))
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "passed"
    assert part["figures"]["libtorch_cuda.so"]["elf"].keys() == {"sm_90"}


def test_without_objdump_arm_code_is_not_inspected(
    project: Project, fleet: Matrix, tmp_path: Path
) -> None:
    flags = fleet.cpus["armv8_2"].flags
    compile_library(tmp_path / "lib", flags, platform="aarch64-linux")
    env = without(tmp_path, "objdump", "aarch64-linux-gnu-objdump")
    folder = str(tmp_path / "lib")
    done = inspect(project, "sm110-armv8_2", "--path", folder, "--json", env=env)
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


# --- results of Nix ---


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    """An empty Nix store of its own."""
    return {
        "NIX_REMOTE": "local",
        "NIX_STORE_DIR": f"{tmp_path}/nix/store",
        "NIX_STATE_DIR": f"{tmp_path}/nix/state",
        "NIX_LOG_DIR": f"{tmp_path}/nix/log",
        "NIX_CONFIG": "substituters =\nbuild-users-group =\nsandbox = false",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


PRINTED = """TORCH
2.10.0
PyTorch built with:
  - GCC 14.3
  - CPU capability usage: AVX2
  - Build settings: BLAS_INFO=open, CXX_FLAGS= -mavx2 -mfma -mf16c -O2, USE_CUDA=0, \

"""


def build(
    project: Project,
    store: dict[str, str],
    folder: Path,
    needs: list[str],
    variant: str = "cpu-avx2",
    python: str = "",
    fails: str = "",
) -> None:
    """Build a result that holds a folder's libraries and refers to store paths of some names."""
    package = next(path.stem for path in project.pkgs.glob("*.nix") if path.stem.endswith(variant))
    if python:
        needs = [*needs, "python3-3.13.9"]
    said = folder.parent / "said"
    said.write_text(python)
    stand_in = folder.parent / "stand-in.sh"
    stand_in.write_text(
        '[ "$PYTHONNOUSERSITE$PYTHONSAFEPATH$PYTHONHOME" = 11 ] || exit 9\n'
        f"{fails or ':'}\nsed s,TORCH,${{PYTHONPATH%%:*}}/torch/__init__.py, {said}\n"
    )
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
  cp -r {folder} $out/lib/python3.13/site-packages/torch/lib
  echo ${{toString needs}} > $out/needs
''
"""
    link = project.root / f"result-{package}"
    subprocess.run(
        ["nix-build", "-E", expression, "-o", str(link)],
        check=True,
        capture_output=True,
        env={**os.environ, **store},
    )


def closure_part(
    project: Project, store: dict[str, str], variant: str = "cpu-avx2"
) -> dict[str, Any]:
    return part_of(inspect(project, variant, "--json", env=store), "closure")


@needs_nix
def test_a_result_is_inspected_and_recorded_with_the_digest_of_its_recipe(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    from build_pytorch.base import digest
    from build_pytorch.results.ledger import Ledger, Tested

    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PRINTED)
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
def test_a_result_of_an_unknown_recipe_is_inspected_and_not_recorded(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PRINTED)
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
    project: Project, store: dict[str, str], tmp_path: Path, said: str, fails: str, found: str
) -> None:
    with_config(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=said, fails=fails)
    done = inspect(project, "cpu-avx2", "--json", env=store)
    assert done.returncode == 1
    assert found in texts(part_of(done, "config"))


@needs_nix
def test_a_result_without_a_python_is_skipped(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    with_config(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [])
    done = inspect(project, "cpu-avx2", "--json", env=store)
    assert done.returncode == 3
    assert part_of(done, "config")["state"] == "skipped"
    assert "no Python 3.13" in part_of(done, "config")["reason"]


@needs_nix
@pytest.mark.parametrize(
    ("old", "new", "unknown"),
    [
        ("CXX_FLAGS=", "OTHER_FLAGS=", "CXX_FLAGS not found"),
        ("2.10.0\n", "\n", "the version not found"),
    ],
)
def test_an_unknown_setting_leaves_the_part_undecided(
    project: Project, store: dict[str, str], tmp_path: Path, old: str, new: str, unknown: str
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PRINTED.replace(old, new, 1))
    done = inspect(project, "cpu-avx2", "--json", env=store)
    assert done.returncode == 3
    assert part_of(done, "config")["state"] == "skipped"
    assert unknown in part_of(done, "config")["reason"]


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
    project: Project, store: dict[str, str], tmp_path: Path, flag: str, fits: bool
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    said = PRINTED.replace("-mfma", f"-mfma {flag}")
    build(project, store, tmp_path / "lib", [], python=said)
    part = part_of(inspect(project, "cpu-avx2", "--json", env=store), "config")
    assert part["state"] == ("passed" if fits else "failed")
    assert texts(part) == ("" if fits else f"CXX_FLAGS with {flag}")


@needs_nix
def test_one_bad_result_is_a_row_and_the_others_are_inspected(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PRINTED)
    (tmp_path / "other/lib").mkdir(parents=True)
    build(project, store, tmp_path / "other/lib", [], "cpu-avx512")
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
    build(project, store, tmp_path / "lib", [], python=PRINTED.replace("2.10.0", "2.9.1"))
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
    build(project, store, tmp_path / "lib", [])
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
    project: Project,
    store: dict[str, str],
    tmp_path: Path,
    variant: str,
    needs: list[str],
    found: str,
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", needs, variant)
    part = closure_part(project, store, variant)
    assert part["state"] == ("failed" if found else "passed")
    assert found in texts(part)


@needs_nix
def test_a_closure_above_its_budget_is_found(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    project.edit("matrix.toml", "cpu = 3", "cpu = 1")
    compile_library(tmp_path / "lib", AVX2)
    with (tmp_path / "lib/large.bin").open("wb") as file:
        file.truncate((1 << 30) + 1)
    build(project, store, tmp_path / "lib", [])
    part = closure_part(project, store)
    assert part["state"] == "failed"
    assert "1.0 GiB; the largest: result 1.0" in texts(part)


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
