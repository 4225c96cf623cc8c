"""`invoke shell`: a shell in the environment of a build, or in the folder of a failed one."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Final

from build_pytorch.base import files, process
from build_pytorch.base.errors import BuildPytorchError, LinkError, ToolError
from build_pytorch.build.build_progress import diagnose
from build_pytorch.build.log_reader import ends_below
from build_pytorch.cli.commands import ShellOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.nix import store
from build_pytorch.results.package_selection import chosen_package, last_log

_KEPT: Final = re.compile(rb"^note: keeping build directory ['\"]?(/[\w./+-]+)", re.MULTILINE)
"""How Nix names the folder that --keep-failed kept; it ends the log of the build."""
_END: Final = 1 << 16  #: bytes at the end of a log in which the line is


def run(options: ShellOptions) -> int:
    """Open a shell and return its exit code. Raises BuildPytorchError where none can be opened."""
    matrix = matrix_reader.load(options.root)
    package = chosen_package(matrix, options.selection)
    script = _in_failed(matrix, package) if options.failed else _in_new(package)
    if not process.which(store.NIX_SHELL):
        raise process.start_error(store.NIX_SHELL, FileNotFoundError())
    if not sys.stdin.isatty():
        raise BuildPytorchError("shell: stdin is no terminal; run it in one")
    # Without it, nix-shell looks for bash in <nixpkgs>, and complains where there is none
    bash = process.which("bash")
    env = {"NIX_BUILD_SHELL": bash} | os.environ if bash else os.environ
    return process.interact(store.shell_argv(package.path, script), cwd=options.root, env=env)


def _in_new(package: Package) -> str:
    """Return the script of a shell in which nothing of the build was done yet."""
    return _say(
        f"The environment of the build of {package.id}. A folder for it: cd $(mktemp -d).",
        "Its phases, one after the other: unpackPhase, cd $sourceRoot, patchPhase, configurePhase,",
        "buildPhase, installPhase; all of them: genericBuild.",
    )


def _in_failed(matrix: Matrix, package: Package) -> str:
    """Return the script of a shell in the kept folder of the last build.

    Raises BuildPytorchError if the last build left no folder that is ours.
    """
    root, (log, _) = matrix.root, last_log(matrix, package)
    again = f"run `invoke build {package.id} --backend nix --keep-failed`"
    try:
        found = _KEPT.findall(ends_below(root, log, _END)[1])
        with os.fdopen(files.open_below(root, log), "rb") as lines:
            phase = diagnose(lines, package).phase or "first"
    except (OSError, LinkError):
        raise ToolError(f"{log}: cannot be read; {again}") from None
    if not found:
        raise BuildPytorchError(f"{log}: names no kept folder; {again}")
    folder = Path(os.fsdecode(found[-1]))
    try:
        is_ours = folder.stat().st_uid == os.geteuid() and (folder / "env-vars").is_file()
    except OSError:
        is_ours = False
    if not is_ours:
        raise BuildPytorchError(f"{folder}: not there any more, or not of a build of ours; {again}")
    here = shlex.quote(str(folder))
    variables = " ".join(f"{name}={here}" for name in ("NIX_BUILD_TOP", "TMPDIR", "TEMP", "TMP"))
    go = f'cd {here}; for file in */setup.py; do cd "${{file%/*}}"; done'
    return f"set +e\n. {here}/env-vars\nexport {variables}\n{go}\n" + _say(
        f"The folder of the failed build of {package.id}, phase {phase}.",
        f"The build saw {folder} as $NIX_BUILD_TOP of its log, with a sandbox as /build.",
        f"The phase again: {phase}Phase. The log: {log}.",
    )


def _say(*lines: str) -> str:
    return "\n".join(f"echo {shlex.quote(line)}" for line in lines)
