"""`invoke ci-matrix`: the packages as a job matrix for GitHub Actions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from build_pytorch.base import console
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import CiMatrixOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.selection import variants_of
from build_pytorch.results.package_selection import chosen_packages

MOST: Final = 256
"""Jobs in one matrix of GitHub Actions (its documentation, "Usage limits")."""

_RUNNERS: Final = {"x86_64-linux": "ubuntu-latest", "aarch64-linux": "ubuntu-24.04-arm"}
"""GitHub's own runners. They are too small for PyTorch; --runner names others."""


class CiJob(Struct, frozen=True, kw_only=True):
    """One job: variants of one release, group and platform, and companions of each."""

    name: str
    """Of one variant its id: the check of the job has this name."""
    release: str
    group: str
    platform: str
    runner: str
    variants: str
    """Ids or package names, with spaces between them."""
    companions: str
    """Names, with commas between them."""


class CiMatrix(Struct, frozen=True):
    """The document that GitHub Actions reads."""

    include: tuple[CiJob, ...]


def run(options: CiMatrixOptions) -> int:
    """Print the matrix: `include`, with jobs of at most `size` variants of a group.

    In a pipe it is one line, which is what GitHub takes; on a terminal it is readable.
    Variants without a real machine are left out, those whose sources have no hash yet, and those
    that are the same build as another one.
    Raises BuildPytorchError for wrong arguments and for more jobs than GitHub takes.
    """
    labels = dict(_RUNNERS)
    for runner in options.runner:
        platform, _, label = runner.partition("=")
        if not label.strip() or platform not in labels:
            raise BuildPytorchError(f"--runner {runner}: use PLATFORM=LABEL, {' or '.join(labels)}")
        labels[platform] = label
    matrix = matrix_reader.load(options.root)
    selected = variants_of(chosen_packages(matrix, options.selection))
    wanted = [v for v in selected if not (v.impossible or v.untaken_hashes)]
    ids = {variant.id for variant in wanted}
    wanted = [v for v in wanted if not (v.same_build_as and v.same_build_as.id in ids)]
    jobs = tuple(_jobs(wanted, options.size, labels))
    if len(jobs) > MOST:
        raise BuildPytorchError(f"{len(jobs)} jobs exceed GitHub's limit of {MOST}; raise --size")
    indent = 2 if sys.stdout.isatty() else None
    console.print_json(CiMatrix(jobs), sys.stdout, indent)
    return EXIT_OK


def _jobs(variants: Sequence[Variant], size: int, labels: dict[str, str]) -> Iterator[CiJob]:
    groups = console.grouped(((v.release_name, v.group.title, v.cpu.platform), v) for v in variants)
    for (release, title, platform), members in groups.items():
        label = f"{release} {title}" if members[0].is_qualified else title
        shards = [members[i : i + size] for i in range(0, len(members), size)]
        for number, shard in enumerate(shards, 1):
            yield CiJob(
                name=shard[0].id if size == 1 else f"{label} {number}/{len(shards)}",
                release=release,
                group=title,
                platform=platform,
                runner=labels[platform],
                variants=" ".join(v.id if v.shares_name else v.package for v in shard),
                companions=",".join(shard[0].release.companion.packages),
            )
