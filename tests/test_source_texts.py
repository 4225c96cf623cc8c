"""Texts that recipes and nixpkgs replace in PyTorch's source, looked up in official wheels."""

from __future__ import annotations

import importlib.util
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import ONE, PROJECT, Project
from msgspec import structs
from test_bump import Api, api  # noqa: F401 - a fixture
from test_prefetch import OTHER, tool

from build_pytorch.base.errors import ToolError
from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.sources import official_source
from build_pytorch.verify import registry, verification
from build_pytorch.verify.check import CheckOutcome
from build_pytorch.verify.checks import source_texts
from build_pytorch.verify.checks.source_texts import WheelFiles, of_nixpkgs, of_recipe, shown_by

needs_pip = pytest.mark.skipif(not importlib.util.find_spec("pip"), reason="no pip")
CUDA = "torch/share/cmake/Caffe2/public/cuda.cmake"
CONFLICT = 'message(FATAL_ERROR "Found two conflicting CUDA'
MKL = """if(MKL_FOUND)
set_property(
  TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES
  ${MKL_ROOT}/lib ${MKL_ROOT}/lib/intel64 ${MKL_ROOT}/lib/intel64_win ${MKL_ROOT}/lib/win-x64)
"""
"""As PyTorch 2.10.0 has it."""


def right() -> dict[str, str | None]:
    """The files of a wheel that have every text that the nixpkgs of these recipes replaces."""
    texts: dict[str, str | None] = {}
    for each in of_nixpkgs():
        if "2.9.1" in each.expressions and (place := shown_by(each)):
            texts[place] = f"{texts.get(place) or ''}{each.text}\n"
    return texts


def outcome(root: Path, texts: dict[str, str | None] | None, text: str = ONE) -> CheckOutcome:
    """The outcome of the check for recipes of a matrix, with files of a stored wheel."""
    matrix = matrix_reader.parse(text, root=root)
    for path, recipe in recipes.render(matrix).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(recipe)
    if texts is not None:
        found = WheelFiles(wheel="torch-2.10.0-linux.whl", sha256="0" * 64, texts=texts)
        source_texts.store(root, "2.10.0", found)
    (only,) = verification.verify(matrix, root, only=["source"]).outcomes
    return only


def test_a_recipe_says_what_it_replaces(matrix: Matrix) -> None:
    text = ONE.replace('kind = "cpu-only"', 'kind = "cpu-only"\nblas = "mkl"')
    with_mkl = matrix_reader.parse(text.replace("[release.cuda13_0.names]", "", 0))
    rendered = recipes.render(with_mkl)
    mkl = rendered[next(v.path for v in with_mkl.variants if v.effects.blas == "mkl")]
    (found,) = of_recipe(mkl)
    assert found.file == "cmake/public/mkl.cmake"
    assert found.text in MKL
    gpu = recipes.render(matrix)[next(v.path for v in matrix.variants if v.gpu_key == "sm103")]
    assert [each.file for each in of_recipe(gpu)] == [
        "cmake/Dependencies.cmake",
        "cmake/Dependencies.cmake",
        "cmake/Codegen.cmake",
    ]
    assert not any(map(shown_by, of_recipe(gpu)))


def test_what_a_wheel_has_passes_and_what_none_has_is_not_run(tmp_path: Path) -> None:
    found = outcome(tmp_path, right())
    assert found.state == "skipped"
    assert f"cuda13_0: cmake/public/cuda.cmake: {CONFLICT}" in found.passed
    assert "cuda13_0: pyproject.toml: setuptools>=70.1.0,<80.0" in found.not_run
    assert found.reason == "what is in no wheel cannot be seen"
    assert not found.failed


def test_an_absent_text_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    near = 'message(FATAL_ERROR "Found 2 conflicting CUDA toolkits")'
    found = outcome(tmp_path, right() | {CUDA: f"cmake_policy()\n  {near}\n", "WHEEL": None})
    errors = [each for each in found.findings if each.severity == "error"]
    assert {each.expected for each in errors} == {
        "'Generator: setuptools' in WHEEL (of setup.py)",
        f"{CONFLICT!r} in {CUDA} (of cmake/public/cuda.cmake)",
    }
    assert f"absent in torch-2.10.0-linux.whl; nearest: {near!r}" in {e.found for e in errors}
    (warned,) = (each for each in found.findings if each.severity == "warning")
    assert "set(CUDAToolkit_ROOT" in warned.expected


def test_without_the_wheel_nothing_passes(tmp_path: Path) -> None:
    folder = tmp_path / ".build-pytorch/wheel-files"
    folder.mkdir(parents=True)
    (folder / "torch-2.10.0-damaged.json").write_text("{")
    found = outcome(tmp_path, None)
    assert not found.passed
    assert "the wheel of PyTorch 2.10.0 was not read; `invoke verify --only source`" in found.reason


def test_a_nixpkgs_whose_texts_nobody_read_is_not_run(tmp_path: Path) -> None:
    text = ONE.replace('torch = "2.9.1"', 'torch = "2.9.0"')
    found = outcome(tmp_path, right(), text)
    assert "cuda13_0" in found.not_run
    assert "not known what nixpkgs replaces for its PyTorch 2.9.0" in found.reason


# --- reading a wheel ---


def plant(
    folder: Path, torch: str, texts: dict[str, str | None], compression: int = zipfile.ZIP_STORED
) -> Path:
    """Write a wheel of 18 MB into a folder in which pip finds it."""
    wheel = folder / f"torch-{torch}-cp312-cp312-manylinux_2_28_x86_64.whl"
    info = f"torch-{torch}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/lib/libtorch_cuda.so", bytes(18 << 20))
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n"
        )
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\n{texts.get('WHEEL')}")
        archive.writestr(f"{info}/RECORD", "")
        for name, text in texts.items():
            if name != "WHEEL" and text is not None:
                archive.writestr(name, text, compression)
    return wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip finds wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def server(wheels: Path) -> Iterator[dict[str, Any]]:
    """A server with the wheels: does it give parts, does it name them, how many bytes it loses."""
    state: dict[str, Any] = {"parts": True, "names part": True, "lost": 0, "bytes": 0}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = (wheels / self.path.rpartition("/")[2]).read_bytes()
            total = len(data)
            start, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
            first, last = (int(start), int(end)) if start else (max(0, total - int(end)), total)
            if is_part := state["parts"]:
                data = data[first : last + 1]
            state["bytes"] += len(data)
            self.send_response(206 if is_part else 200)
            if is_part and state["names part"]:
                self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) - state["lost"]])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state["base"] = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield state
    server.shutdown()
    server.server_close()


@needs_pip
def test_the_wheel_that_pip_finds_is_read_once(tmp_path: Path, wheels: Path) -> None:
    wheel = plant(wheels, "2.10.0", right() | {CUDA: None})
    found = official_source.read_source(tmp_path, "2.10.0")
    assert found == source_texts.stored(tmp_path, "2.10.0")
    assert (found.wheel, len(found.sha256)) == (wheel.name, 64)
    assert found.texts[CUDA] is None
    assert "Generator: setuptools" in (found.texts["WHEEL"] or "")
    wheel.unlink()
    (variant, *_) = matrix_reader.parse(ONE, root=tmp_path).variants
    matrix = matrix_reader.parse(ONE, root=tmp_path)
    assert list(official_source.read_missing(matrix, [variant])) == []
    with pytest.raises(ToolError, match=r"pip finds no wheel of PyTorch 2\.10\.1"):
        official_source.read_source(tmp_path, "2.10.1")


def test_only_the_needed_parts_of_a_wheel_are_read(
    tmp_path: Path, wheels: Path, server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = plant(wheels, "2.10.0", right())
    address = f"{server['base']}/{wheel.name}"
    monkeypatch.setattr(official_source, "_address", lambda _: (address, "0" * 64))
    assert (
        official_source.read_source(tmp_path, "2.10.0").texts.items()
        >= {CUDA: right()[CUDA]}.items()
    )
    assert server["bytes"] < 7 << 20
    server["parts"] = False
    with pytest.raises(ToolError, match="the server answered 200, not with a part of it"):
        official_source.read_source(tmp_path, "2.10.0")
    server["parts"] = True
    wheel.write_bytes(b"no zip file" * 1000)
    with pytest.raises(ToolError, match=r"cannot be read: File is not a zip file"):
        official_source.read_source(tmp_path, "2.10.0")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"names part": False}, "the server does not say which part it sent"),
        ({"lost": 1000}, "File is not a zip file"),
        ({"large": True}, "cuda.cmake has 2000000 bytes, more than 1048576"),
        ({"broken": True}, "invalid|incorrect|Bad CRC|Error -3"),
    ],
)
def test_a_wheel_that_cannot_be_read_is_one_line(
    tmp_path: Path,
    wheels: Path,
    server: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, Any],
    says: str,
) -> None:
    text = "x" * 2_000_000 if "large" in fault else "a text that is compressed " * 100
    wheel = plant(wheels, "2.10.0", right() | {CUDA: text}, zipfile.ZIP_DEFLATED)
    if "broken" in fault:
        data = bytearray(wheel.read_bytes())
        place = data.index(CUDA.encode()) + len(CUDA)
        data[place : place + 20] = bytes(20)
        wheel.write_bytes(data)
    monkeypatch.setattr(
        official_source, "_address", lambda _: (f"{server['base']}/{wheel.name}", "0" * 64)
    )
    server.update(fault)
    with pytest.raises(ToolError, match=says) as error:
        official_source.read_source(tmp_path, "2.10.0")
    assert "\n" not in str(error.value)
    assert source_texts.stored(tmp_path, "2.10.0") is None


@needs_pip
@pytest.mark.parametrize("words", ["bump", "add release next --like cuda13_0"])
def test_a_pytorch_without_a_text_that_nixpkgs_replaces_is_refused(
    words: str,
    api: Api,  # noqa: F811
    project: Project,
    wheels: Path,
) -> None:
    del api
    plant(wheels, "2.11.0", right() | {"WHEEL": "Generator: scikit-build-core 1.1.1"})
    before = (project.root / "matrix.toml").read_bytes()
    env = tool(project, "nurl", f"echo {OTHER}")
    done = project.run("invoke", *words.split(), "--torch", "2.11.0", env=env)
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "nearest: 'Generator: scikit-build-core 1.1.1'" in said
    assert (project.root / "matrix.toml").read_bytes() == before


def test_the_table_has_a_source_for_the_pins_of_the_matrix() -> None:
    pins = matrix_reader.parse((PROJECT / "matrix.toml").read_text()).pins
    expressions = {each for text in of_nixpkgs() for each in text.expressions}
    assert pins["early_2026"].torch in expressions
    assert structs.asdict(of_nixpkgs()[0])["file"] == "setup.py"


def test_the_check_is_named_source_texts() -> None:
    assert [check.id for check in registry.chosen(["source"])] == ["source-texts"]
