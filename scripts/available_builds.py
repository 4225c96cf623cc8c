"""Compare the rows of PyPI in available.toml with the metadata of the wheels there.

`python scripts/available_builds.py` prints each difference, and what it cannot read; pip loads
the metadata alone. Exit code 1: there is a difference. Rows of other publishers are read by hand.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.base import foreign_json, process
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, ToolError
from build_pytorch.matrix.available import AvailableBuild, available_builds
from build_pytorch.matrix.versions import minor_version, order

TAGS: Final = {
    "x86_64-linux": ("manylinux_2_28_x86_64", "manylinux1_x86_64"),
    "aarch64-linux": ("manylinux_2_28_aarch64",),
    "aarch64-darwin": ("macosx_14_0_arm64", "macosx_11_0_arm64"),
}
_CUDA: Final = r"(?:cuda-toolkit(?:\[.*?\])?|nvidia-cuda-runtime-cu\d+) ?\(?==([0-9.]+)"
"""A requirement that names the version of CUDA."""


def metadata(torch: str, platform: str, python: str) -> dict[str, Any]:
    """Return the metadata of the wheel that pip would install. Raises ToolError without one."""
    tags = [word for tag in TAGS[platform] for word in ("--platform", tag)]
    with tempfile.TemporaryDirectory(prefix="metadata-") as folder:
        argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps"]
        argv += ["--report", "-", "--target", folder, "--only-binary", ":all:", *tags]
        printed = process.output_of([*argv, "--python-version", python, f"torch=={torch}"])
    found: dict[str, Any] = foreign_json.decode(printed)["install"][0]["metadata"]
    return found


def differences(build: AvailableBuild) -> Iterator[str]:
    """Yield what the metadata of a row's versions say otherwise."""
    for torch in build.versions:
        for python in (build.pythons[0], build.pythons[-1]):
            name = f"{torch} for {build.platform}, Python {python}"
            try:
                required = metadata(torch, build.platform, python).get("requires_dist", [])
            except ToolError as error:
                yield f"{name}: {str(error).splitlines()[-1]}"
                continue
            found = next(filter(None, (re.match(_CUDA, line) for line in required)), None)
            cuda = minor_version(found[1]) if found else ""
            if cuda != build.cuda:
                yield f"{name}: CUDA {cuda or 'none'}, the row has {build.cuda or 'none'}"


def newer_version() -> str:
    """Return a version of PyTorch on PyPI that no row has, or an empty text."""
    argv = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    found = re.search(r"^torch \(([0-9.]+)\)", process.output_of(argv), re.MULTILINE)
    known = max((it.version for it in available_builds() if it.index == ""), key=order)
    return found[1] if found and order(found[1]) > order(known) else ""


def main() -> int:
    """Compare all rows of PyPI; 1 if one differs."""
    found = [f"{it} is on PyPI, and no row has it" for it in [newer_version()] if it]
    for build in available_builds():
        found += differences(build) if build.index == "" else ()
    for line in found:
        print(line)  # noqa: T201 - a script for a terminal
    return EXIT_FINDINGS if found else EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())
