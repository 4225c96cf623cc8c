"""How long builds usually take: the last ones of their kind, else the estimate of the matrix."""

from __future__ import annotations

from typing import Any

import pytest

from build_pytorch.build.backends import BuildAction, Step
from build_pytorch.build.usual_times import UsualTime, usual_times
from build_pytorch.matrix.model import Matrix
from build_pytorch.results.ledger import Event, subject_of


def usual(matrix: Matrix, name: str, *builds: tuple[str, float, dict[str, Any]]) -> UsualTime:
    """The usual time of a package with an estimate of 7 s, after builds of others, newest first."""
    packages = {package.id: package for package in matrix.packages}
    events = []
    for day, (id_, seconds, fields) in enumerate(builds):
        release, variant = subject_of(packages[id_])
        at = f"2026-11-{28 - day}"
        values = {"at": at, "digest": "d", "attempt": at, "outcome": "built"}
        subject = {"release": release, "variant": variant, "seconds": seconds}
        events.append(Event(event="ended", **{**values, **subject, **fields}))
    step = Step(package=packages[name], action=BuildAction.BUILD, reason="", digest="d")
    return usual_times(events[::-1], matrix.packages, [step], {step.name: 7.0})[step.name]


def test_the_median_of_the_last_three_of_a_kind(matrix: Matrix) -> None:
    builds = (80.0, 100.0, 90.0, 9000.0)
    for count, wanted in enumerate(
        [
            (80, "the last of its kind"),
            (90, "the last two of its kind"),
            (90, "the last three of its kind"),
            (90, "the last three of its kind"),
        ],
        1,
    ):
        found = usual(matrix, "cpu-avx2", *(("cpu-avx512", s, {}) for s in builds[:count]))
        assert (found.seconds, found.source) == wanted


@pytest.mark.parametrize(
    ("id_", "seconds", "fields"),
    [
        ("sm90-avx2", 80.0, {}),
        ("cpu-avx2+torchvision", 90.0, {}),
        ("cpu-avx2", 59.0, {}),
        ("cpu-avx2", 80.0, {"outcome": "failed"}),
        ("cpu-avx2", 80.0, {"outcome": "interrupted"}),
        ("cpu-avx2", 80.0, {"host": "another machine"}),
    ],
)
def test_what_is_no_whole_build_of_the_kind_here_leaves_the_estimate(
    matrix: Matrix, id_: str, seconds: float, fields: dict[str, Any]
) -> None:
    found = usual(matrix, "cpu-avx2", (id_, seconds, fields))
    assert found == UsualTime(7.0)
    assert found.source == "estimate of matrix.toml"
