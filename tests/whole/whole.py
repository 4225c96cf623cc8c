"""Build PyTorch 2.6.0 of Debian 13's sources through the tool: `nox -s whole -- VARIANT...`.

BUILD_PYTORCH_DEBIAN names a root folder of Debian 13 with the sources of PyTorch and with MKL:
root.sh makes it, and cuda.sh adds CUDA 13.0 for the GPU variants.
BUILD_PYTORCH_WHOLE names the folder of all that is made (default: .nox/whole): a Nix store, a
compiler cache and a checkout, in which `./env invoke status` and other commands work.

Nix's sandbox shows a build the folders of the root as /usr, /lib and so on; the rest is the model
of nixpkgs of this project (torch.nix, build.sh). What follows -- goes to `invoke build`.
"""

from __future__ import annotations

import grp
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PROJECT: Final = HERE.parents[1]
MODEL: Final = PROJECT / "build_pytorch/verify/nixpkgs_model"
GROUP: Final = "nixbld"
# Its files by their contents: with other files of the model, packages keep their paths, which are
# in the keys of the compiler cache.
BUILDER: Final = """{
  builder = "/bin/bash";
  args = map (path: builtins.path { inherit path; }) [ ./build.sh ./python.sh ];
  checksHashes = _: false;
}
"""


def state_folder() -> Path:
    """Return the folder of all that is made."""
    return Path(os.environ.get("BUILD_PYTORCH_WHOLE") or PROJECT / ".nox/whole").resolve()


def make_nixpkgs(folder: Path) -> None:
    """Write the model of nixpkgs with our torch and our builder into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(MODEL, folder)
    (folder / "torch.nix").rename(folder / "model-torch.nix")
    for name in ("torch.nix", "build.sh", "python.sh", "cuda13.patch"):
        shutil.copy(HERE / name, folder)
    (folder / "builder.nix").write_text(BUILDER)
    for name, old, new in (
        ("packages.nix", "mkl-2023.1.0", "mkl-2024.2.2"),
        ("default.nix", 'torch = "2.9.1"', 'torch = "2.6.0"'),
    ):
        path = folder / name
        path.write_text(path.read_text().replace(old, new))


def make_environment(folder: Path, debian: Path) -> dict[str, str]:
    """Write nix.conf and return the variables with which Nix uses its own store in a folder."""
    variables = {
        "NIX_REMOTE": "local",
        "NIX_STORE_DIR": f"{folder}/nix/store",
        "NIX_STATE_DIR": f"{folder}/nix/state",
        "NIX_LOG_DIR": f"{folder}/nix/log",
        "NIX_CONF_DIR": f"{folder}/nix/conf",
        "TMPDIR": str(folder / "tmp"),
        "XDG_CACHE_HOME": f"{folder}/xdg",
        "BUILD_PYTORCH_DEBIAN": str(debian),  # for python.sh
        "BUILD_PYTORCH_WHOLE": str(folder),
    }
    groups = {entry.gr_name for entry in grp.getgrall()}
    for name in ("nix/conf", "tmp", "xdg", "cache"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if GROUP in groups:  # each build is a user of its own, which cannot change the root folder
        shutil.chown(folder / "cache", group=GROUP)
        (folder / "cache").chmod(0o2770)
    shown = [f"/{name}={debian}/{name}" for name in ("usr", "bin", "lib", "lib64", "src", "opt")]
    etc = ("alternatives", "ld.so.cache", "python3.13", "ssl")
    shown += [f"/etc/{name}={debian}/etc/{name}" for name in etc]
    lines = [
        "substituters =",
        f"build-users-group = {GROUP if GROUP in groups else ''}",
        "sandbox = true",
        "sandbox-fallback = false",
        f"sandbox-paths = {' '.join(shown)} {folder}/cache?",
    ]
    (folder / "nix/conf/nix.conf").write_text("\n".join(lines) + "\n")
    (folder / "cache/ccache.conf").write_text("max_size = 10G\n")
    return variables


def nix(variables: dict[str, str], *argv: str) -> str:
    """Run one of Nix's programs and return the last word that it prints."""
    env = os.environ | variables
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env=env)
    return done.stdout.split()[-1]


def make_checkout(root: Path, sha256: str, cache: Path) -> None:
    """Write a checkout with our matrix, or bring the program and the matrix of one up to date."""
    root.mkdir(exist_ok=True)
    kept = shutil.ignore_patterns("__pycache__", ".git", ".venv", ".nox", ".*_cache")
    for name in ("build_pytorch", "templates", "docs", "nix", ".flox/env"):
        shutil.rmtree(root / name, ignore_errors=True)
        shutil.copytree(PROJECT / name, root / name, ignore=kept)
    shutil.rmtree(root / "nix/nixpkgs", ignore_errors=True)  # of other releases
    for name in (".flox/env.json", "tasks.py", "noxfile.py", "pyproject.toml", "README.md"):
        shutil.copy(PROJECT / name, root / name)
    text = (HERE / "matrix.toml").read_text().replace("CACHE", str(cache))
    rev = text.partition('rev = "')[2].partition('"')[0]
    text = text.replace('sha256 = ""', f'sha256 = "{sha256}"')
    text = text.replace('sha256_of = ""', f'sha256_of = "{rev}"')
    (root / "matrix.toml").write_text(text)


def main() -> int:
    """Prepare the folder and run `invoke build` in its checkout. Return the exit code."""
    debian = Path(os.environ.get("BUILD_PYTORCH_DEBIAN") or "/nonexistent")
    lacks = {
        "BUILD_PYTORCH_DEBIAN: names no folder that tests/whole/root.sh made": not (
            list(debian.glob("src/pytorch-*")) and (debian / "usr/bin/python3.13").exists()
        ),
        "BUILD_PYTORCH_DEBIAN: lacks the CUDA that tests/whole/cuda.sh adds": (
            any(word.startswith("cuda") for word in sys.argv[1:])
            and not (debian / "opt/cuda/bin/nvcc").exists()
        ),
        "Nix: no nix-store in PATH": not shutil.which("nix-store"),
        "root: the builds need the folders and the users of root": os.geteuid() != 0,
    }
    if lacking := [message for message, is_lacking in lacks.items() if is_lacking]:
        print(*lacking, sep="\n", file=sys.stderr)
        return 2
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    variables = make_environment(folder, debian.resolve())
    source = folder / "source"  # the name of what fetchTarball unpacks
    make_nixpkgs(source)
    path = nix(variables, "nix-store", "--add-fixed", "--recursive", "sha256", str(source))
    nix(variables, "nix-store", "--realise", path, "--add-root", str(folder / "nixpkgs"))
    hash_argv = ("nix", "--extra-experimental-features", "nix-command", "hash", "path", path)
    root = folder / "checkout"
    make_checkout(root, nix(variables, *hash_argv), folder / "cache")
    words = " ".join(shlex.quote(f"{key}={value}") for key, value in variables.items())
    enter = f"cd {shlex.quote(str(root))} && exec env {words}"
    script = f'#!/bin/sh\n{enter} {sys.executable} -m "$@"\n'
    (folder / "env").write_text(script)
    (folder / "env").chmod(0o755)
    code = subprocess.run([folder / "env", "invoke", "all"], check=False).returncode
    if not code:
        argv = ["env", "invoke", "build", "--backend", "nix", *sys.argv[1:]]
        os.execv(folder / "env", argv)  # noqa: S606 - so that a signal reaches `invoke build`
    return code


if __name__ == "__main__":
    raise SystemExit(main())
