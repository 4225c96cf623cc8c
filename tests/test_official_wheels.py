"""What official wheels have compiled in."""

from __future__ import annotations

import pytest

from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.official_wheels import code_runs_on, official_wheels, wheels_of


def test_each_wheel_stands_once_with_its_gpu_code_and_source() -> None:
    wheels = official_wheels()
    keys = [(wheel.torch, wheel.platform, wheel.cuda) for wheel in wheels]
    assert len(set(keys)) == len(keys)
    for wheel in wheels:
        assert bool(wheel.sass) == bool(wheel.cuda), wheel
        assert all(code.startswith("sm_") for code in wheel.sass)
        assert all(code.startswith("compute_") for code in wheel.ptx)
    assert wheels_of("2.10.0", "x86_64-linux")[0].cuda == "12.8"
    assert wheels_of("1.0.0", "x86_64-linux") == ()


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ("sm_80 sm_90", {"9.0": "exact", "8.6": "compatible", "12.0": None, "8.7": None}),  # Tegra
        ("sm_86", {"8.0": None}),
        ("sm_120", {"12.1": "compatible"}),
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
def test_a_wheel_runs_where_its_code_does(codes: str, expected: dict[str, str | None]) -> None:
    found = {capability: code_runs_on(codes.split(), capability) for capability in expected}
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
