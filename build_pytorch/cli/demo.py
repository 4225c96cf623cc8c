"""`invoke demo`: a project, two builds, a failure and its diagnosis, in a minute."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from build_pytorch.base import files, paths
from build_pytorch.base.console import Screen, quoted
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.build import stand_in
from build_pytorch.cli import build, diagnose, phases, status
from build_pytorch.cli.commands import COMMANDS, DemoOptions
from build_pytorch.cli.declaration import options_from, parsed
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.matrix_lines import lines_for
from build_pytorch.matrix.model import Matrix, Variant

_NOTICE: Final = (
    "A demonstration: a stand-in replaces nixpkgs. Recipes, checks, Nix and logs are real; its "
    "builds compile nothing, so their output, times and results are not those of PyTorch."
)
_FAILURE: Final = "phases; cuda=OFF; summary; sleep 600"
"""What the second build does: a GPU build whose configuration has no CUDA. See stand_in.sh."""


def run(options: DemoOptions) -> int:
    """Make a project and run commands in it as a person would. Raises BuildPytorchError."""
    if options.what[1:]:
        raise BuildPytorchError("demo: name one folder, or none for a temporary one")
    good, bad = _two_variants(matrix_reader.load(paths.SHIPPED))
    lacking = stand_in.missing_program()
    folder, screen = _empty_folder(options), Screen(sys.stdout)
    try:
        _play(screen, folder, good, bad, lacking)
    except BaseException:  # another run begins anew
        for path, _, _ in os.walk(folder):
            Path(path).chmod(0o700)  # the stores of Nix are read-only
        shutil.rmtree(folder)
        raise
    place = quoted(str(folder))
    screen.command("Delete it: ", f"chmod -R u+w {place} && rm -r {place}")
    return EXIT_OK


def _play(screen: Screen, folder: Path, good: Variant, bad: Variant, lacking: str | None) -> None:
    """Make the project in a folder, run the commands, and say how to go on."""
    project = folder / "project"
    files.write_all(folder, _project(bad))
    os.chdir(project)
    screen.fold("", _NOTICE)
    if lacking:
        screen.fold("", f"{lacking}: recipes are made, and nothing is built.")
        _run(screen, project, "all")
        _run(screen, project, "status")
        return
    site = stand_in.Site(folder)
    scenarios = {"default.sh": b"good\n", f"{bad.short_id}.sh": f"{_FAILURE}\n".encode()}
    files.write_all(site.scenarios, scenarios)
    with stand_in.served(site):
        os.environ.update(site.env)
        _run(screen, project, "all")
        _run(screen, project, "build", good.short_id, bad.short_id, "--backend", "nix")
        _run(screen, project, "status")
        _run(screen, project, "diagnose", bad.short_id)
    # The tarball is in Nix's cache, and the proxy answers no longer: nothing reaches the network.
    settings = site.env | {"NIX_CONFIG": f"{site.env['NIX_CONFIG']}\ntarball-ttl = 1000000000"}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
    files.write_all(folder, {"env.sh": "".join(lines).encode()})
    screen.line("\nTo go on there, for example to mend the failed build:")
    screen.command("  ", f"cd {quoted(str(project))} && . ../env.sh")
    screen.line(f"  echo good >../scenarios/{bad.short_id}.sh")
    screen.line(f"  {paths.SCRIPT} build {bad.short_id} --backend nix --retry")


def _two_variants(matrix: Matrix) -> tuple[Variant, Variant]:
    """Return two GPU variants of the lowest ISA of this platform. Raises BuildPytorchError."""
    here = f"{platform.machine()}-linux"
    newest = matrix.of_release(next(iter(matrix.releases)))
    found = [v for v in newest if v.gpu and v.cpu.platform == here and not v.impossible]
    found = [v for v in found if v.cpu.level == min(each.cpu.level for each in found)]
    if not found[1:] or sys.platform != "linux":
        raise BuildPytorchError("demo: runs on Linux on x86-64 and ARM; try it there")
    return found[0], found[-1]


def _empty_folder(options: DemoOptions) -> Path:
    if not options.what:
        return Path(tempfile.mkdtemp(prefix="build-pytorch-demo-")).resolve()
    folder = Path(options.what[0]).resolve()
    if folder.exists():
        raise BuildPytorchError(f"{folder}: exists; name a new folder")
    with files.write_errors(folder):
        folder.mkdir(parents=True)
    return folder


def _project(bad: Variant) -> dict[str, bytes]:
    """Return the files of a project with two variants, which any machine may build."""
    project = paths.SHIPPED / "examples/project"
    text = files.read_named(project / paths.MATRIX).decode()
    text += "\n" + lines_for(matrix_reader.parse(text), bad)
    texts = {".gitignore": files.read_named(project / ".gitignore").decode()}
    needs = r"\b(disk|job_memory|reserved_memory) = [\d.]+"
    texts[paths.MATRIX] = re.sub(needs, r"\1 = 0.01", text)
    return {f"project/{path}": text.encode() for path, text in texts.items()}


def _run(screen: Screen, project: Path, name: str, *words: str) -> None:
    """Print a command and run it in the project; one may fail."""
    screen.line(f"\n$ {paths.SCRIPT} {' '.join((name, *words))}")
    command = COMMANDS[name]
    given, _ = parsed(command, words)
    _RUNS[name](options_from(command, given, project))


_RUNS: Final[dict[str, Callable[[Any], int]]] = {
    "all": phases.run,
    "build": build.run,
    "status": status.run,
    "diagnose": diagnose.run,
}
