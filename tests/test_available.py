"""The table of published builds, and which code runs where."""

from __future__ import annotations

import datetime as dt

import pytest

from build_pytorch.matrix.available import available_builds, driver_of, stale_builds, wheel_like
from build_pytorch.matrix.compatibility import capability_of, fit, runs_on
from build_pytorch.matrix.versions import order


def test_each_row_is_installed_in_one_way_and_has_a_cuda_of_which_the_driver_is_known() -> None:
    for build in available_builds():
        ways = [build.index is not None, bool(build.spec), bool(build.command)]
        assert ways.count(True) == 1, build
        assert build.driver == driver_of(build.cuda)
        assert bool(build.cuda) is (build.driver != "0") is bool(build.code), build
        assert list(build.code) == sorted(build.code, key=lambda it: [*map(int, it.split("."))])
        assert list(build.versions) == sorted(build.versions, key=order)


def test_a_wheel_that_was_read_names_its_file_and_its_digest() -> None:
    wheels = [build for build in available_builds() if build.features]
    assert len({(it.version, it.platform, it.cuda) for it in wheels}) == len(wheels)
    for wheel in wheels:
        file = f"PyPI, torch-{wheel.version}-"
        assert wheel.who == "PyPI"
        assert wheel.source.startswith(file)
        assert ".whl, sha256 " in wheel.source


@pytest.mark.parametrize(
    ("torch", "platform", "cuda", "found"),
    [
        ("2.10.0", "x86_64-linux", "12.8", "12.8"),
        ("2.10.0", "x86_64-linux", "13.0", "12.8"),
        ("2.10.0", "aarch64-linux", "13.0", ""),
        ("2.12.0", "x86_64-linux", "13.0", None),  # of the row of 2.12.1, which was read
        ("1.0.0", "x86_64-linux", "", None),
    ],
)
def test_a_wheel_is_that_of_the_version_and_best_that_of_the_cuda(
    torch: str, platform: str, cuda: str, found: str | None
) -> None:
    wheel = wheel_like(torch, platform, cuda)
    assert (wheel and wheel.cuda) == found


def test_rows_that_nobody_checked_for_90_days_are_named_in_one_line() -> None:
    rows = available_builds()
    oldest = min(row.checked for row in rows)
    assert stale_builds(oldest + dt.timedelta(days=90)) == ""
    line = stale_builds(oldest + dt.timedelta(days=200))
    assert line.startswith(f"available.toml: {len(rows)} rows not checked for 90 days: PyPI, index")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ("sm_75 sm_86 sm_90", {"7.5": "exact", "8.9": "compatible", "8.0": None, "10.0": None}),
        ("sm_80 sm_86", {"8.6": "exact", "8.7": None}),
        ("sm_90a", {"9.0": "exact"}),
        ("sm_100a", {"10.3": None}),
        ("sm_100f", {"10.3": "compatible", "12.0": None}),
        ("sm_90 compute_90", {"12.0": "ptx", "8.9": None}),
        ("sm_90 compute_90a", {"10.0": None}),
        ("sm_100 compute_100f", {"10.3": "compatible"}),
        ("sm_100a compute_100f", {"10.3": "ptx", "12.0": None}),
        ("", {"9.0": None}),
    ],
)
def test_code_runs_or_not(codes: str, expected: dict[str, str | None]) -> None:
    code, ptx = (
        [capability_of(code) for code in codes.split() if code.startswith(kind)]
        for kind in ("sm_", "compute_")
    )
    found = {it: fit(tuple(code), tuple(ptx), it) for it in expected}
    assert found == expected


@pytest.mark.parametrize(
    ("expected", "pairs"),
    [
        ("exact", "8.0>8.0 8.7>8.7 11.0>11.0 12.1a>12.1 10.0f>10.0 11.0a>11.0"),
        ("compatible", "8.0>8.6 8.0>8.9 8.6>8.9 10.0>10.3 12.0>12.1 10.0f>10.3"),
        (None, "8.6>8.0 12.1>12.0 8.9>9.0 9.0>10.0 1.2>12.0 10.0>1.0 12.0a>12.1 10.3f>10.0"),
        (None, "8.0>8.7 8.6>8.7 8.7>8.9 7.0>7.2"),  # Tegra
    ],
)
def test_code_runs_on_the_same_major_with_an_equal_or_higher_minor(
    expected: str | None, pairs: str
) -> None:
    for pair in pairs.split():
        built, _, device = pair.partition(">")
        assert runs_on(built, device) == expected, pair


@pytest.mark.parametrize("wrong", ["sm_120", "120", "12.", ".0", "", "12.0x"])
def test_what_is_no_dotted_capability_is_refused(wrong: str) -> None:
    for built, device in ((wrong, "12.0"), ("12.0", wrong), ("12.0", "12.0a")):
        with pytest.raises(ValueError, match="not a dotted compute capability"):
            runs_on(built, device)
