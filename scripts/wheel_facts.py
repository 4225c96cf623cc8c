"""Read official wheels of PyTorch, without running them, into official_wheels.toml.

`python scripts/wheel_facts.py 2.15.0` runs it; pip downloads each wheel, which is deleted after it.
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
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import tomlkit

from build_pytorch.base import files, process
from build_pytorch.base.console import write
from build_pytorch.base.errors import EXIT_BAD_INPUT, EXIT_OK, ToolError
from build_pytorch.base.versions import numbers
from build_pytorch.inspect import fatbin
from build_pytorch.inspect.configuration import features_in, stated_in, with_blas
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.matrix import official_wheels
from build_pytorch.matrix.field_types import Platform
from build_pytorch.matrix.official_wheels import OfficialWheel
from build_pytorch.tasks.command import guarded

PLATFORMS: Final[dict[Platform, str]] = {"x86_64-linux": "x86_64", "aarch64-linux": "aarch64"}
_TAGS: Final = ("manylinux_2_28", "manylinux2014", "manylinux1")
"""Platform tags of the wheels, the newest first; 2.6.0 for x86-64 has the last."""
_PYTHON: Final = "3.12"
"""A Python that all versions have a wheel for; the libraries of the others are the same."""
_READ: Final = re.compile(
    r"torch/lib/[^/]+\.so[^/]*|torch\.libs/[^/]+|torch/version\.py|.*/METADATA"
)
_REQUIRED: Final = r"Requires-Dist: nvidia-{}-cu\d+ ?\(?==([0-9.]+)"
"""A CUDA library that a wheel needs, and its version."""


def read_wheel(torch: str, platform: Platform) -> OfficialWheel:
    """Download the wheel that pip installs by default, 0.1 to 1 GB, and return what is in it.

    Nothing stays on the disk. Raises ToolError if there is no such wheel or it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name)
        tags = [word for tag in _TAGS for word in ("--platform", f"{tag}_{PLATFORMS[platform]}")]
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name]
        argv += ["--only-binary", ":all:", "--python-version", _PYTHON, *tags, f"torch=={torch}"]
        process.capture(argv)
        wheel = next(folder.glob("*.whl"))
        with wheel.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [n for n in archive.namelist() if _READ.fullmatch(n)])
        return _read(folder, torch, platform, f"PyPI, {wheel.name}, sha256 {digest}")


def _read(folder: Path, torch: str, platform: Platform, source: str) -> OfficialWheel:
    libraries = with_blas(folder / "torch/lib")
    sass, ptx = _gpu_code(folder / "torch/lib/libtorch_cuda.so")
    features = features_in(libraries)
    metadata = next(folder.glob("torch-*/METADATA")).read_text(errors="replace")
    for name in features:
        if required := re.search(_REQUIRED.format(name), metadata):
            features[name] = features[name] or required[1]
    return OfficialWheel(
        torch=torch,
        platform=platform,
        cuda=stated_in((folder / "torch/version.py").read_text(errors="replace")).get("cuda", ""),
        index="",
        sass=sass,
        ptx=ptx,
        features=features,
        source=source,
        checked=dt.datetime.now(dt.UTC).date().isoformat(),
    )


def _gpu_code(library: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the machine code and the PTX that at least half of the objects have."""
    objects = fatbin.device_objects(read_elf(library)) if library.exists() else []
    if not objects:
        return (), ()
    cubins = Counter(code for each in objects for code in each.cubins)
    ptx = Counter(code for each in objects for code in each.ptx)
    least = max(cubins.values(), default=0) / 2

    def common(found: Counter[str]) -> tuple[str, ...]:
        return tuple(sorted((code for code in found if found[code] > least), key=_number))

    return common(cubins), common(ptx)


def _number(code: str) -> tuple[int, str]:
    return int(re.sub(r"\D", "", code)), code


def file_text(old: str, wheels: Iterable[OfficialWheel]) -> str:
    """Return the text of official_wheels.toml with its opening comment and these wheels."""
    ordered = sorted(wheels, key=lambda wheel: (numbers(wheel.torch), wheel.platform, wheel.cuda))
    rows = [
        {k: v for k, v in msgspec.to_builtins(w).items() if v or k in {"cuda", "index"}}
        for w in ordered
    ]
    return old.partition("[[wheel]]")[0] + tomlkit.dumps({"wheel": rows})


def main() -> int:
    """Read the given versions, or the known ones again; 2 if one cannot be read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("versions", nargs="*", help="versions of PyTorch, such as 2.10.0")
    parser.add_argument("--platform", choices=PLATFORMS, help="by default both")
    options = parser.parse_args()
    known = {(w.torch, w.platform, w.index): w for w in official_wheels.official_wheels()}
    path, code = Path(official_wheels.__file__).with_suffix(".toml"), EXIT_OK
    for torch in options.versions or dict.fromkeys(torch for torch, _, _ in known):
        for platform in (each for each in PLATFORMS if options.platform in {each, None}):
            title = f"PyTorch {torch} for {platform}"
            write(sys.stderr, f"{title}: downloading up to 1 GB\n")
            try:
                known[torch, platform, ""] = read_wheel(torch, platform)
            except ToolError as error:
                write(sys.stderr, f"{title}: {str(error).splitlines()[-1]}\n")
                code = EXIT_BAD_INPUT
                continue
            text = file_text(files.read_named(path).decode(), known.values())
            files.write_all(path.parent, {path.name: text.encode()})
    return code


if __name__ == "__main__":
    raise SystemExit(guarded(main))
