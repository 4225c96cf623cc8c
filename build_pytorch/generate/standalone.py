"""torch-for-me.pyz: the modules that decide in one file that Python runs, without what they need.

`nox -s standalone` and flake.nix run this module; it needs the standard library and pynvml alone.
The same sources give the same bytes: nothing is compressed, as zlib differs between machines.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import tomllib
import zipfile
from pathlib import Path
from typing import Final

from build_pytorch.base import files, outputs, paths
from build_pytorch.base.errors import WriteError

PROGRAM: Final = "docs/site/torch-for-me.pyz"
_ROOMS: Final = ("base", "matrix", "hardware")
_COMMAND: Final = ("describe_machine", "recommend_document", "recommend_screen", "torch_for_me")
_MEMBER: Final = b"build_pytorch/cli/torch_for_me.py"
_START: Final = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("error: Python 3.11 or newer is needed; this is " + sys.version.split()[0])
from build_pytorch.base.errors import end_at_signals

end_at_signals()
from build_pytorch.cli.torch_for_me import main

sys.exit(main())
"""


def program(root: Path, python: str = "/usr/bin/env python3") -> bytes:
    """Return the file of a checkout, with the Python that runs it.

    Raises OSError, also if pynvml is not installed.
    """
    names = [name for room in _ROOMS for name in files.walk_below(root, f"build_pytorch/{room}")]
    names += [f"build_pytorch/{room}/__init__.py" for room in ("cli", ".")]
    names += [f"build_pytorch/cli/{name}.py" for name in _COMMAND]
    contents = {
        str(Path(name)): files.read_below(root, str(Path(name)))
        for name in names
        if name.endswith((".py", ".toml"))
    }
    nvml = importlib.util.find_spec("pynvml")
    contents["pynvml.py"] = files.read_named(Path((nvml and nvml.origin) or "pynvml.py"))
    contents["msgspec.py"] = contents["build_pytorch/base/plain_structs.py"]
    tables = tomllib.loads(files.read_text_below(root, paths.MATRIX))
    tables.pop("builder", None)  # machines of whoever makes the file
    contents["build_pytorch/matrix.json"] = json.dumps(tables).encode()
    contents["__main__.py"] = _START.encode()
    archive = io.BytesIO(f"#!{python}\n".encode())
    archive.seek(0, io.SEEK_END)
    with zipfile.ZipFile(archive, "a") as opened:
        for name, data in sorted(contents.items()):
            opened.writestr(zipfile.ZipInfo(name), data)  # of 1980, as all others
    return archive.getvalue()


def main() -> None:
    """Write the file of this checkout. Exits with code 2 if it cannot be written."""
    parser = argparse.ArgumentParser(description="Write torch-for-me.pyz.", allow_abbrev=False)
    parser.add_argument("target", type=Path, help="the file to write")
    parser.add_argument("python", nargs="?", help="the path of the Python that runs it")
    options = parser.parse_args()
    target, python = options.target, [options.python] if options.python else []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        data = program(paths.PROJECT, *python)
        outputs.write_output(target, data, "a program", lambda old: _MEMBER in old)
        target.chmod(0o755)
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    except WriteError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
