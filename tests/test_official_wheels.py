"""What official wheels have compiled in."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from build_pytorch.matrix.official_wheels import official_wheels, runs_on, wheels_of


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
    wheel = replace(
        official_wheels()[0],
        sass=tuple(code for code in codes.split() if code.startswith("sm")),
        ptx=tuple(code for code in codes.split() if code.startswith("compute")),
    )
    assert {capability: runs_on(wheel, capability) for capability in expected} == expected
