"""Whether builds here use the compiler cache that the option `cache` of a release names."""

from __future__ import annotations

import contextlib
import grp
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base import files
from build_pytorch.build.backends.base_backend import BuildBackend, Step
from build_pytorch.nix.store import NixSettings

_WRITABLE: Final = stat.S_ISGID | stat.S_IRWXG
"""What the group of the builders needs, so that entries stay readable for all of them."""


def notes(steps: Sequence[Step], backend: BuildBackend) -> Iterator[str]:
    """Yield for each folder whether builds use it, and what to change if they do not."""
    folders = {step.variant.release.build.cache for step in steps} - {""}
    for folder in sorted(folders):
        if backend.is_remote:
            yield f"cache {folder}: each builder uses its own, if its nix.conf mounts the folder"
            continue
        found = list(_problems(Path(folder), backend.host))
        yield from (f"cache {folder}: {problem}" for problem in found)
        if not found:
            yield f"cache {folder}: builds use it; any build can put wrong objects into it"


def _problems(folder: Path, host: NixSettings) -> Iterator[str]:
    group = host.build_users_group or "nixbld"
    if not folder.is_dir():
        yield f"not used, no such folder; install -d -m 2770 -g {group} {folder}"
        return
    if host.features is None:
        yield "unknown whether it is used: nix is not on PATH to show the settings of the daemon"
    elif not host.sandbox:
        yield "not shared by variants without a sandbox, because paths differ; set sandbox = true"
    elif not any(_mounts(path, folder) for path in host.sandbox_paths):
        yield (
            f"not used, builds do not see it; add `extra-sandbox-paths = {folder}?` to "
            "/etc/nix/nix.conf and restart nix-daemon"
        )
    if host.build_users_group and not _is_writable(folder, group):
        yield f"not writable for builds; chgrp {group} {folder} && chmod 2770 {folder}"
    if not _has_limit(folder):
        yield f"ccache keeps 5 GiB; echo 'max_size = 20G' >{folder}/ccache.conf"


def _mounts(path: str, folder: Path) -> bool:
    """Whether a value of sandbox-paths (`TARGET`, `TARGET=SOURCE`, or with ?) contains a folder."""
    target = path.removesuffix("?").partition("=")[0]
    return folder.is_relative_to(target)


def _is_writable(folder: Path, group: str) -> bool:
    found = folder.stat()
    with contextlib.suppress(KeyError):
        if found.st_gid == grp.getgrnam(group).gr_gid:
            return found.st_mode & _WRITABLE == _WRITABLE
    return bool(found.st_mode & stat.S_IWOTH)


def _has_limit(folder: Path) -> bool:
    try:
        text = files.read_named(folder / "ccache.conf", files.LARGEST_TEXT).decode(
            "utf-8", "replace"
        )
    except OSError:
        return False
    return any(line.partition("=")[0].strip() == "max_size" for line in text.splitlines())
