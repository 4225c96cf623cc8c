"""Read official wheels of PyTorch, without running them, into their rows of available.toml.

`python scripts/wheel_facts.py 2.15.0` runs it; pip downloads each wheel, which is deleted after it.
A version without a row of PyPI gets one, whose Pythons are to be completed by hand.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import re
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.items import AoT

from build_pytorch.base import files, process
from build_pytorch.base.console import write
from build_pytorch.base.errors import EXIT_BAD_INPUT, EXIT_OK, ToolError
from build_pytorch.inspect.configuration import features_in, stated_in, with_blas
from build_pytorch.inspect.elf_file import device_objects, read_elf
from build_pytorch.matrix import available
from build_pytorch.matrix.available import available_builds
from build_pytorch.matrix.compatibility import capability_of
from build_pytorch.matrix.versions import numbers
from build_pytorch.tasks.command import guarded

PLATFORMS: Final = {"x86_64-linux": "x86_64", "aarch64-linux": "aarch64"}
_TAGS: Final = ("manylinux_2_28", "manylinux2014", "manylinux1")
"""Platform tags of the wheels, the newest first; 2.6.0 for x86-64 has the last."""
_PYTHON: Final = "3.12"
"""A Python that all versions have a wheel for; the libraries of the others are the same."""
_READ: Final = re.compile(
    r"torch/lib/[^/]+\.so[^/]*|torch\.libs/[^/]+|torch/version\.py|.*/METADATA"
)
_REQUIRED: Final = r"Requires-Dist: nvidia-{}-cu\d+ ?\(?==([0-9.]+)"
"""A CUDA library that a wheel needs, and its version."""


def read_wheel(torch: str, platform: str) -> dict[str, Any]:
    """Download the wheel that pip installs by default, 0.1 to 1 GB, and return what its row says.

    Nothing stays on the disk. Raises ToolError if there is no such wheel or it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name)
        tags = [word for tag in _TAGS for word in ("--platform", f"{tag}_{PLATFORMS[platform]}")]
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name]
        argv += ["--only-binary", ":all:", "--python-version", _PYTHON, *tags, f"torch=={torch}"]
        process.output_of(argv)
        wheel = next(folder.glob("*.whl"))
        with wheel.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [n for n in archive.namelist() if _READ.fullmatch(n)])
        code, ptx = gpu_code(folder / "torch/lib/libtorch_cuda.so")
        features = features_in(with_blas(folder / "torch/lib"))
        metadata = next(folder.glob("torch-*/METADATA")).read_text(errors="replace")
        for name_ in features:
            if required := re.search(_REQUIRED.format(name_), metadata):
                features[name_] = features[name_] or required[1]
        version = (folder / "torch/version.py").read_text(errors="replace")
        return {
            "cuda": stated_in(version).get("cuda", ""),
            "code": code,
            "ptx": ptx,
            "source": f"PyPI, {wheel.name}, sha256 {digest}",
            "checked": dt.datetime.now(dt.UTC).date(),
            "features": features,
        }


def gpu_code(library: Path) -> tuple[list[str], list[str]]:
    """Return the capabilities of machine code and of PTX that at least half of the objects have."""
    objects = device_objects(read_elf(library)) if library.exists() else []
    counts = Counter(code for each in objects for code in each)
    least = max((counts[code] for code in counts if code.startswith("sm_")), default=0) / 2

    def common(kind: str) -> list[str]:
        codes = [code for code in counts if code.startswith(kind) and counts[code] > least]
        return sorted(map(capability_of, codes), key=numbers)

    return common("sm_"), common("compute_")


def changed(text: str, torch: str, platform: str, facts: dict[str, Any]) -> str:
    """Return the text of available.toml with what was read of a wheel in its row of PyPI."""
    document = tomlkit.parse(text)
    rows = document["build"]
    assert isinstance(rows, AoT)  # noqa: S101 - a file of this repository
    for row in rows:
        if (row["who"], row["platform"], row["versions"][-1:]) == ("PyPI", platform, [torch]):
            break
    else:
        row = tomlkit.table()
        row.update({"who": "PyPI", "versions": [torch], "platform": platform, "index": ""})
        rows.append(row)
    for key, value in facts.items():
        if value and row.get(key) != value:
            row[key] = value
    return tomlkit.dumps(document)


def main() -> int:
    """Read the given versions, or the known ones again; 2 if one cannot be read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("versions", nargs="*", help="versions of PyTorch, such as 2.10.0")
    parser.add_argument("--platform", choices=PLATFORMS, help="by default both")
    options = parser.parse_args()
    known = [it.version for it in available_builds() if it.features]
    path, code = Path(available.__file__).with_suffix(".toml"), EXIT_OK
    for torch in options.versions or dict.fromkeys(known):
        for platform in (each for each in PLATFORMS if options.platform in {each, None}):
            title = f"PyTorch {torch} for {platform}"
            write(sys.stderr, f"{title}: downloading up to 1 GB\n")
            try:
                facts = read_wheel(torch, platform)
            except ToolError as error:
                write(sys.stderr, f"{title}: {str(error).splitlines()[-1].strip()}\n")
                code = EXIT_BAD_INPUT
                continue
            text = changed(files.read_named(path).decode(), torch, platform, facts)
            files.write_all(path.parent, {path.name: text.encode()})
    return code


if __name__ == "__main__":
    raise SystemExit(guarded(main))
