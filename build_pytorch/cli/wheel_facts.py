"""The program behind `nox -s wheel-facts`: reads official wheels into official_wheels.toml."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from build_pytorch.base import files
from build_pytorch.base.console import write
from build_pytorch.base.errors import ToolError
from build_pytorch.cli.entry import guarded
from build_pytorch.matrix import official_wheels
from build_pytorch.sources import wheel_reader


def main() -> int:
    """Read the wheels of the given versions, by default of the known ones; return the exit code."""
    parser = argparse.ArgumentParser(prog="nox -s wheel-facts --", description=__doc__)
    parser.add_argument("versions", nargs="*", help="versions of PyTorch, such as 2.10.0")
    parser.add_argument("--platform", choices=wheel_reader.PLATFORMS, help="by default both")
    options = parser.parse_args()
    known = {(w.torch, w.platform, w.index): w for w in official_wheels.official_wheels()}
    versions = options.versions or list(dict.fromkeys(torch for torch, _, _ in known))
    platforms = [each for each in wheel_reader.PLATFORMS if options.platform in {each, None}]
    path = Path(official_wheels.__file__).with_suffix(".toml")
    failed = 0
    for torch in versions:
        for platform in platforms:
            write(sys.stderr, f"PyTorch {torch} for {platform}: downloading up to 1 GB\n")
            try:
                known[torch, platform, ""] = wheel_reader.read_wheel(torch, platform)
            except ToolError as error:
                write(
                    sys.stderr, f"PyTorch {torch} for {platform}: {str(error).splitlines()[-1]}\n"
                )
                failed = 1
                continue
            old = files.read_named(path).decode()
            text = wheel_reader.file_text(old, known.values())
            files.write_all(path.parent, {path.name: text.encode()})
    return failed


if __name__ == "__main__":
    raise SystemExit(guarded(main))
