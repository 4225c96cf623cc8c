"""Run README's two commands with Git and Python alone, as an ordinary user: `nox -s bare`.

As root, and with debootstrap, they run in a new Debian 12 (Python 3.11.2) in .nox/bare. Elsewhere
they run on this machine, and PATH has Git, Python and the programs of Debian's essential packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
DEBIAN = PROJECT / ".nox/bare/debian"
PACKAGES = "ca-certificates,git,python3,python3-venv"
NOBODY = 65534
IN_NAMESPACE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
CHROOT = """
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot --userspec="$1:$1" --groups= "$0" "${@:2}"
"""
HOST_FILES = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""How the network is reached from here."""


def commands() -> str:
    """Return the shell commands of README's section "Start"."""
    readme = (PROJECT / "README.md").read_text()
    match = re.search(r"\n## Start\n\n```sh\n(.*?)```", readme, re.DOTALL)
    assert match, "README.md has no commands in its section Start"
    return match[1]


def can_have_root_folder() -> bool:
    """Return whether this user can make and enter a root folder."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return False
    return subprocess.run([*IN_NAMESPACE, "true"], check=False).returncode == 0


def make_debian() -> bool:
    """Make the root folder, unless an earlier run has. Return whether it is there."""
    if not DEBIAN.exists():
        unfinished = DEBIAN.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        argv = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm"]
        done = subprocess.run([*argv, unfinished], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print("".join(done.stdout.splitlines(keepends=True)[-20:]), file=sys.stderr)
            return False
        unfinished.rename(DEBIAN)
    for name in HOST_FILES:
        if Path("/", name).exists():
            shutil.copy(Path("/", name), DEBIAN / name)
    return True


def link_programs(folder: Path) -> None:
    """Fill a folder with links to Git, Python and the programs of Debian's essential packages."""
    query = ["dpkg-query", "--show", "--showformat=${Essential} ${Package}\\n"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    essential = [line.split()[1] for line in lines if line.startswith("yes ")]
    files = ["dpkg", "--listfiles", *essential]
    paths = subprocess.run(files, capture_output=True, text=True, check=True).stdout.splitlines()
    programs = [path for path in paths if re.fullmatch(r"(/usr)?/s?bin/[^/]+", path)]
    for name in ("git", "python3"):
        found = shutil.which(name, path=os.defpath) or shutil.which(name)
        assert found, f"{name} is not installed"
        programs.append(found)
    folder.mkdir()
    for program in programs:
        link = folder / Path(program).name
        link.unlink(missing_ok=True)
        link.symlink_to(program)


def copy_checkout(folder: Path) -> None:
    """Copy the files of this checkout that Git does not ignore to a new repository."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    listing = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if os.path.lexists(PROJECT / name):  # a deleted file is listed until it is committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name, follow_symlinks=False)
    for argv in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "copy"]):
        subprocess.run([*git, *argv], cwd=folder, check=True)


def run_commands(argv: list[str], home: Path, path: str, *, root: Path = Path("/")) -> int:
    """Run README's commands in a copy of the checkout below a home folder. Return the exit code."""
    copy_checkout(home / "build-pytorch")
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", home], check=True)
    inside = f"/{home.relative_to(root)}"
    network = {k: v for k, v in os.environ.items() if re.match("(?i)pip_|https?_proxy|no_proxy", k)}
    env = {"HOME": inside, "PATH": path, "LANG": "C.UTF-8", **network}
    script = f'cd "$HOME/build-pytorch"\nid; python3 --version\n{commands()}'
    variables = [f"{key}={value}" for key, value in env.items()]
    return subprocess.run(
        [*argv, "env", "-i", *variables, "sh", "-exc", script], check=False
    ).returncode


def main() -> int:
    if can_have_root_folder() and make_debian():
        home = DEBIAN / "home/user"
        shutil.rmtree(home, ignore_errors=True)
        enter = [*IN_NAMESPACE, "bash", "-ec", CHROOT, str(DEBIAN), str(NOBODY)]
        return run_commands(enter, home, "/usr/local/bin:/usr/bin:/bin", root=DEBIAN)
    print("no root folder (needs root and debootstrap): a short PATH instead", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="build-pytorch-bare-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        link_programs(folder / "bin")
        ordinary = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        argv = ordinary if os.geteuid() == 0 else []
        return run_commands(argv, folder / "home", str(folder / "bin"))


if __name__ == "__main__":
    raise SystemExit(main())
