"""Libraries that tests compile, and what the parts of an inspection report about them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import ONE, PROJECT, Project

from build_pytorch.inspect import inspection
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Package, Variant

COMPILER = "x86_64-linux-gnu-g++"
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
MATRIX = matrix_reader.parse(ONE)


def compile_library(
    folder: Path, *, name: str = "libtorch_cpu.so", source: str = "void scale() {}"
) -> Path:
    """A shared library of one C++ source."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(compiled(source))
    return folder / name


@functools.cache
def compiled(source: str) -> bytes:
    """The library as bytes: many tests want the same one."""
    if not shutil.which(COMPILER):
        pytest.skip(f"no {COMPILER}")
    with tempfile.TemporaryDirectory() as place:
        argv = [COMPILER, "-shared", "-fPIC", "-x", "c++", "-", "-o", "library"]
        subprocess.run(argv, input=source, text=True, check=True, cwd=place)
        return Path(place, "library").read_bytes()


needs_cuda = pytest.mark.skipif(
    not (shutil.which("ptxas") and shutil.which("fatbinary")), reason="no CUDA toolkit"
)
PTX = ".version 9.0\n.target sm_{}\n.address_size 64\n.visible .entry kernel() {{ ret; }}\n"


def device_library(folder: Path, *objects: str, name: str = "libtorch_cuda.so") -> Path:
    """A library of objects, each some codes: `90 90a ptx90`. Without nvcc, which takes seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(linked_device_code(objects))
    return folder / name


@functools.cache
def linked_device_code(objects: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        source = '.section .note.GNU-stack, ""\n.section .nv_fatbin, "a"\n'
        for number, codes in enumerate(objects):
            images = []
            for code in codes.split():
                kind, sm = ("ptx" if "ptx" in code else "elf"), code.removeprefix("ptx")
                Path(place, code).write_bytes(device_image(code))
                images.append(f"--image3=kind={kind},sm={sm},file={code}")
            argv = ["fatbinary", f"--create={number}.fatbin", "-64", *images]
            subprocess.run(argv, check=True, cwd=place)
            source += f'.align 8\n.incbin "{number}.fatbin"\n'
        argv = [COMPILER, "-shared", "-x", "assembler", "-", "-o", "library"]
        subprocess.run(argv, input=source, text=True, check=True, cwd=place)
        return Path(place, "library").read_bytes()


@functools.cache
def device_image(code: str) -> bytes:
    """A kernel compiled for one architecture, or kept as PTX."""
    text = PTX.format(code.removeprefix("ptx"))
    if code.startswith("ptx"):
        return text.encode()
    with tempfile.TemporaryDirectory() as place:
        source, cubin = Path(place, "kernel.ptx"), Path(place, "kernel.cubin")
        source.write_text(text)
        subprocess.run(["ptxas", f"-arch=sm_{code}", str(source), "-o", str(cubin)], check=True)
        return cubin.read_bytes()


def with_config(folder: Path, flags: list[str]) -> None:
    """The main library with these flags, and the version.py of a CPU-only 2.10.0."""
    said = " ".join([*flags, "-fvisibility-inlines-hidden -O2"])
    compile_library(folder, source=f'const char* flags() {{ return "{said}"; }}\n')
    text = "__version__ = '2.10.0'\ncuda: Optional[str] = None\n"
    (folder.parent / "version.py").write_text(text)


def small_project(root: Path, *recipes: str) -> Project:
    """What `inspect` and `smoke` read of a project: the matrix, and these recipes."""
    project = Project(root)
    project.pkgs.mkdir(parents=True)
    (root / "matrix.toml").write_text(ONE)
    for name in recipes:
        project.recipe(name).write_bytes(Project(PROJECT).recipe(name).read_bytes())
    return project


def variant_of(variant_id: str, **versions: str) -> Variant:
    """A variant of the matrix, or the same with another version of `cuda` or `torch`."""
    variant = next(variant for variant in MATRIX.variants if variant.id == variant_id)
    replace, release = msgspec.structs.replace, variant.release
    for name, version in versions.items():
        release = replace(release, **{name: replace(getattr(release, name), version=version)})
    return replace(variant, release=release)


def package_of(package_id: str) -> Package:
    return next(package for package in MATRIX.packages if package.id == package_id)


def looked(part_id: str, package: str | Package, folder: Path) -> dict[str, Any]:
    """What one part reports about the files of a folder, as the JSON document has it."""
    package = package_of(package) if isinstance(package, str) else package
    result = inspection.inspect_target(inspection.folder_target(package, folder))
    return next(dict(msgspec.to_builtins(part)) for part in result.parts if part.id == part_id)


def texts(part: dict[str, Any], severity: str = "error") -> str:
    """What the findings of a severity say."""
    return "\n".join(f["found"] for f in part["findings"] if f["severity"] == severity)
