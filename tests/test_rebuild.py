"""`invoke rebuild`: whether a second build yields the same files, and which differ and why."""

from __future__ import annotations

import gzip
import json
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import Project, error_line, needs_nix
from world import World

from build_pytorch.base.console import Screen
from build_pytorch.build.file_differences import FileDifference, file_differences
from build_pytorch.cli import rebuild

PYC = b"\xcb\r\r\n\0\0\0\0"
NVCC = b"_ZN37_GLOBAL__N__%s_7_Copy_cu_8a7b_%sE tmpxft_%s_00000000"


def wheel(path: Path, year: int, text: str = "x") -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("torch/a.py", (year, 1, 1, 0, 0, 0)), text)


def test_reasons_of_differences(tmp_path: Path) -> None:
    """Each file has one cause, which is named; a change of contents has none."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, n in ((one, 1), (two, 2)):
        (folder / "lib").mkdir(parents=True)
        (folder / "lib/a.pyc").write_bytes(PYC + bytes([n]) * 8 + b"code")
        (folder / "lib/a.gz").write_bytes(gzip.compress(b"text", mtime=n))
        wheel(folder / "a.whl", 1990 + n)
        wheel(folder / "b.whl", 1990, f"text {n}")
        (folder / "built").write_text(f"on 2026-11-0{n} at 10:0{n}:00")
        (folder / "place").write_text(f"/var/nix-build-torch.drv-{n}/source")
        (folder / "lib/libtorch_cuda.so").write_bytes(b"\0tmpxft_0000%04x_00000000\0" % n)
        (folder / "lib/libtorch_cpu.so").write_bytes(b"\x7fELF" + bytes([n]))
        (folder / "same").write_text("same")
        (folder / "link").symlink_to(f"target{n}")
    (one / "gone").touch()
    (two / "new").touch()
    assert {d.path: d.why for d in file_differences(one, two)} == {
        "a.whl": "time stamps in the archive",
        "b.whl": "",
        "built": "date or time",
        "gone": "only in the first build",
        "lib/a.gz": "time stamp of gzip",
        "lib/a.pyc": "time stamp of Python bytecode",
        "lib/libtorch_cpu.so": "",
        "lib/libtorch_cuda.so": "process id of nvcc in names",
        "link": "target of the link",
        "new": "only in the second build",
        "place": "path of the build folder",
    }


@needs_nix
def test_a_build_that_is_the_same_again(reader: World) -> None:
    done = reader.project.run("invoke", "rebuild", "cpu-avx2", "--json", env=reader.env)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["variants"]
    assert (row["variant"], row["outcome"], row["differences"]) == ("cpu-avx2", "same", [])


@needs_nix
def test_objects_from_a_compiler_cache_are_called_copies(world: World) -> None:
    """That they are the same again says nothing of the compiler."""
    world.scenario("cpu-avx2", "good; echo build-pytorch: compiler cache: 1301 hits, 62 misses >&2")
    assert world.build("cpu-avx2", "--backend", "nix").returncode == 0
    done = world.project.run("invoke", "rebuild", "cpu-avx2", env=world.env)
    assert done.returncode == 0, done.stderr
    assert "1301 of 1363 objects are copies from a compiler cache" in " ".join(done.stdout.split())


@needs_nix
def test_a_build_that_differs_names_the_files(world: World) -> None:
    """The first result stays, and the second one is kept beside it."""
    world.scenario("cpu-avx2", 'good; date +"at %F %T.%N" >"$out/when"; echo a >"$out/same"')
    assert world.build("cpu-avx2", "--backend", "nix").returncode == 0
    target = world.link("cpu-avx2").resolve()
    done = world.project.run("invoke", "rebuild", "cpu-avx2", "--json", env=world.env)
    assert done.returncode == 1, done.stderr
    (row,) = json.loads(done.stdout)["variants"]
    assert (row["outcome"], row["message"]) == ("different", f"1 file of {target}")
    assert [d["path"] for d in row["differences"]] == ["when"]
    assert Path(row["second"], "when").read_text() != (target / "when").read_text()
    assert world.link("cpu-avx2").resolve() == target


def test_files_of_one_reason_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The second build of a whole PyTorch wrote 639 files of bytecode with other time stamps."""
    why = "time stamp of Python bytecode"
    bytecode = tuple(FileDifference(f"torch/{n:03}.pyc", why) for n in range(639))
    rows = (*bytecode, FileDifference("lib/libc10.so", ""))
    rebuild.print_rebuilt(
        Screen(sys.stdout),
        rebuild.Rebuilt(variant="cpu-avx2", outcome="different", differences=rows),
    )
    assert capsys.readouterr().out.splitlines() == [
        "cpu-avx2: different",
        "  1 file: not known why; `diffoscope` shows it: lib/libc10.so",
        "  639 files: time stamp of Python bytecode: torch/000.pyc torch/001.pyc",
        "    torch/002.pyc and 636 more",
    ]


@needs_nix
def test_a_second_build_that_fails(world: World) -> None:
    world.build("cpu-avx2", "--backend", "nix")
    world.scenario("cpu-avx2", "phases; exit 1")
    done = world.project.run("invoke", "rebuild", "cpu-avx2", env=world.env)
    assert done.returncode == 1
    assert "cpu-avx2: failed in " in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("argv", "says"), [((), "name what to build again"), (("cpu-avx3",), "cpu-avx3")]
)
def test_wrong_names(still: Project, argv: tuple[str, ...], says: str) -> None:
    done = still.invoke("rebuild", *argv)
    assert done.returncode == 2
    assert says in error_line(done)


@needs_nix
def test_what_is_not_built(still: Project) -> None:
    done = still.invoke("rebuild", "cpu-avx2")
    assert done.returncode == 1
    assert "cpu-avx2: not built: result-pytorch-python313-cpu-avx2 does not exist" in done.stdout
