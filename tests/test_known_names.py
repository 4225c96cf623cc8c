"""What is known of GPUs and CPUs, by the names that people use, and of published builds."""

from __future__ import annotations

import datetime as dt
import json
import platform
import tomllib
from typing import Any

import archspec.cpu
import pytest
from conftest import PROJECT, WHOLE

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware.detect import described_machine, gpu_named, processor_named
from build_pytorch.matrix import defaults, known_hardware, matrix_reader
from build_pytorch.matrix.available import available_builds, driver_of, stale_builds
from build_pytorch.matrix.compatibility import capability_of, fit, runs_on
from build_pytorch.matrix.versions import order

KNOWN = known_hardware.load()
MATRIX = matrix_reader.parse(WHOLE)
MACHINES = PROJECT / "tests/machines"
SPARK, ZEN4 = str(MACHINES / "dgx-spark.json"), str(MACHINES / "rtx5090-zen4.json")

GPUS = {
    "6.0": "Tesla P100-PCIE-16GB",
    "6.1": "Tesla P40; GTX 1080; gtx-1080ti; NVIDIA TITAN X (Pascal)",
    "3.0": "GTX 780M; GeForce GTX 770",
    "3.5": "Tesla K40m; GTX 780 Ti",
    "5.0": "GTX 960M; GeForce GTX 950M; M2000M",
    "5.2": "GeForce GTX TITAN X; GTX 960; 980m",
    "7.0": "NVIDIA TITAN V; V100",
    "7.5": "T4; Quadro RTX 6000; GeForce RTX 2080 Ti; TITAN RTX; GRID T4-16Q; GTX 1660 SUPER; T4G",
    "8.0": "NVIDIA A100-SXM4-40GB; A100 MIG 1g.10gb; sm80",
    "8.6": "NVIDIA RTX A6000; A4000; RTX 3090; GeForce RTX 2050; a10g",
    "8.7": "Orin (nvgpu); Jetson Orin",
    "8.9": "RTX4090; NVIDIA GeForce RTX 4090; nvidia rtx-4090; rtx 4070 ti super; 8.9; L4; L40S",
    "8.9  ": "4090; 4060 ti; sm_89; compute_89; 4090 laptop",
    "8.9 ": "rtx 4090 laptop gpu; NVIDIA RTX 6000 Ada Generation; RTX 4000 SFF Ada",
    "9.0": "NVIDIA GH200 480GB; H100",
    "10.0": "B200",
    "10.3": "B300",
    "11.0": "Jetson Thor; NVIDIA Thor",
    "12.0": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition; RTX 5090; RTX 5070 Ti",
    "12.1": "NVIDIA GB10; DGX Spark",
    "9.9": "9.9",
}
CPUS = {
    "avx": "Intel(R) Core(TM) i7-3770 CPU @ 3.40GHz; Xeon(R) CPU E5-2670 v2 @ 2.50GHz; Ivy Bridge;"
    "AMD FX(tm)-8350 Eight-Core Processor; Intel(R) Xeon(R) CPU E5-1680 v2 @ 3.00GHz; ivybridge",
    "avx2": "haswell; Zen 2; AMD Ryzen 7 7735HS with Radeon Graphics; Ryzen 7 5800X3D; x86-64-v3;"
    "AMD Ryzen Threadripper PRO 5995WX 64-Cores; AMD EPYC 7763 64-Core Processor; EPYC 7F52;"
    "Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz; 13th Gen Intel(R) Core(TM) i9-13900K; Intel(R) N100;"
    "Intel(R) Core(TM) Ultra 9 285K; Intel(R) Core(TM) i3-N305; Xeon E5-2690 v4; skylake;"
    "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz; Intel(R) Xeon(R) 6780E; Xeon E3-1505M v5;"
    "E5-2680 v4",
    "avx512": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz; skylake-avx512; Xeon(R) W-2145; i9-7900X;"
    "Gold 6148",
    "avx512vnni": "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz; Core(TM) i5-1145GRE; icelake;"
    "Intel(R) Xeon(R) Gold 6248 CPU; Xeon(R) Platinum 8380; cascadelake",
    "avx512bf16": "zen4; AMD Ryzen 9 7950X 16-Core Processor; Ryzen 9 9955HX3D; AMD EPYC 9654;"
    "AMD Ryzen 7 7840U w/ Radeon 780M Graphics; AMD Ryzen AI 9 HX 370 w/ Radeon 890M; EPYC 9755;"
    "AMD RYZEN AI MAX+ PRO 395 w/ Radeon 8060S; Xeon(R) Platinum 8480+; Xeon(R) 8570;"
    "Xeon w7-2495X",
    "armv8_2": "Raspberry Pi 5; Graviton3; Graviton 2; Neoverse-N1; neoverse_v1; Jetson Orin",
    "armv9": "Grace; Graviton 4; neoverse_v2; GB10; Thor",
    "apple": "Apple M2 Max; m3",
    None: "Celeron(R) N4000 CPU @ 1.10GHz; Intel(R) Core(TM)2 Duo CPU E8400; Raspberry Pi 4; a64fx",
}


def test_a_gpu_is_known_by_its_name() -> None:
    found = {
        name.strip(): gpu_named(name.strip())
        for names in GPUS.values()
        for name in names.split(";")
    }
    wanted = {n.strip(): key.strip() for key, names in GPUS.items() for n in names.split(";")}
    assert {name: gpu and gpu.capability for name, gpu in found.items()} == wanted
    for key, row in KNOWN.gpu.items():
        for product in (*row.names, *row.arm_only):
            gpu = gpu_named(product)
            assert gpu is not None
            assert gpu.capability == row.capability, key
            assert gpu.processor in {None, *KNOWN.processor}


def test_a_cpu_is_known_by_its_name() -> None:
    wanted = {name.strip(): isa for isa, names in CPUS.items() for name in names.split(";")}
    found = {name: processor_named(name) for name in wanted}
    assert {name: it.isa if it else "unknown" for name, it in found.items()} == wanted


def test_the_names_of_saved_machines_are_known() -> None:
    for path in MACHINES.glob("*.json"):
        here = json.loads(path.read_text())
        for gpu in here["gpus"]:
            found = gpu_named(gpu["name"])
            assert (found and found.capability) == gpu["capability"], path
        model = here["cpu"]["model"] or "part"
        if "part" not in model and any(map(str.isdigit, model)):
            assert processor_named(model), path


@pytest.mark.parametrize("key", KNOWN.processor)
def test_a_generation_has_the_isa_that_archspec_lists(key: str) -> None:
    processor = KNOWN.processor[key]
    assert bool(processor.isa) is not bool(processor.flags)
    if processor.isa:
        assert KNOWN.cpu[processor.isa].platform == processor.platform
    if not processor.archspec:
        return
    features = archspec.cpu.TARGETS[processor.archspec].features
    isas = [
        name
        for name, isa in KNOWN.cpu.items()
        if isa.platform == processor.platform and isa.cpuinfo and set(isa.cpuinfo) <= set(features)
    ]
    assert max(isas, key=lambda name: KNOWN.cpu[name].level, default=None) == processor.isa


NO_CPU = (
    *("Ryzen 9 99500X", "Ryzen 10950X", "Ryzen AI 99999", "Zen 6", "Zen 55", "FX-83500", "zen9000"),
    *("Core i9-99999K", "i7-119000", "i13-12900K", "Core Ultra 9 99999K", "139000K", "core i7"),
    *("Xeon 99999", "Xeon Gold 61480", "Xeon E5-2690 v9", "Xeon E5-2687W v9", "EPYC 96540"),
    *("Graviton 5", "Apple M99", "", "ryzen", "486", "an abacus", "x" * 10_000),
)
NO_GPU = (
    *("RTX 50900", "RTX 5099", "RTX 5010", "50900", "RTX 3040", "GTX 1690", "GTX 10800", "H1000"),
    *("RTX A9999", "RTX PRO 9999", "RTX 9999 Ada", "Quadro RTX 9999", "Quadro P9000", "L400", "90"),
    *("", "nvidia", "rtx", "6000", "GTX 1060M", "a 5", "x" * 10_000, "1" * 5000, "1.2.3"),
    "Radeon RX 7900 XTX",
)


def test_a_name_that_no_product_has_is_unknown() -> None:
    assert [name for name in NO_CPU if processor_named(name)] == []
    assert [name for name in NO_GPU if gpu_named(name)] == []


needs_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the CPU of an ARM machine is taken"
)
DESCRIBED: list[Any] = [
    ({"gpu": "RTX4090", "cpu": "avx2", "driver": "550"}, "x86_64-linux", ["8.9"], "550", None),
    ({"gpu": "8.6, RTX5090", "cpu": "avx512"}, "x86_64-linux", ["8.6", "12.0"], None, None),
    ({"gpu": "none", "cpu": "zen4"}, "x86_64-linux", [], None, None),
    ({"gpu": "none", "cpu": "Graviton3"}, "aarch64-linux", [], None, None),
    ({"gpu": "A100", "cpu": "avx2", "driver": "12.8"}, "x86_64-linux", ["8.0"], None, "12.8"),
    ({"gpu": "none", "file": ZEN4}, "x86_64-linux", [], "580.95.05", "13.0"),
    ({"file": ZEN4, "driver": "550"}, "x86_64-linux", ["12.0"], "550", None),
    ({"file": ZEN4, "driver": "none"}, "x86_64-linux", ["12.0"], None, None),
    ({"cpu": "AVX-512"}, "x86_64-linux", [], None, None),
    ({"cpu": "Apple M3"}, "aarch64-darwin", [], None, None),
    pytest.param({"gpu": "GH200"}, "aarch64-linux", ["9.0"], None, None, marks=needs_x86),
    pytest.param({"gpu": "12.1"}, "aarch64-linux", ["12.1"], None, None, marks=needs_x86),
]


@pytest.mark.parametrize(("words", "platform_", "gpus", "driver", "cuda"), DESCRIBED)
def test_a_machine_may_be_described_by_words(
    words: dict[str, str], platform_: str, gpus: list[str], driver: str | None, cuda: str | None
) -> None:
    here = described_machine(MATRIX, **words)
    assert here.platform == platform_
    assert [gpu.capability for gpu in here.gpus] == gpus
    assert (here.driver, here.cuda) == (driver, cuda)


def test_a_cpu_has_the_flags_of_its_isa_and_of_the_lower_ones() -> None:
    zen4, avx2 = (described_machine(MATRIX, cpu=cpu).cpu.flags.split() for cpu in ("zen4", "avx2"))
    assert {"f16c", "avx512_bf16"} <= {*zen4}
    assert "avx512f" not in avx2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"gpu": "RTX 4095", "cpu": "avx2"}, 'found "RTX 4095"; did you mean "rtx 4090"?'),
        ({"gpu": "6000", "cpu": "avx2"}, 'found "6000"; allowed: an NVIDIA GPU such as'),
        ({"gpu": "dgxspark", "cpu": "zen4"}, '; did you mean "dgx spark"?'),
        ({"gpu": "DGX Spark", "cpu": "zen4"}, "does not work on x86_64-linux"),
        ({"gpu": "RTX 4090", "cpu": "M1"}, "does not work on aarch64-darwin"),
        ({"gpu": "GB10", "file": ZEN4}, "does not work on x86_64-linux"),
        (
            {"gpu": "abacus", "cpu": "avx2"},
            "; allowed: an NVIDIA GPU such as 'RTX 4090', a compute",
        ),
        ({"gpu": "x" * 5000, "cpu": "avx2"}, f'--gpu: found "{"x" * 36}"; allowed: an'),
        ({"gpu": "A100,", "file": SPARK}, '--gpu: found ""; allowed: an NVIDIA GPU'),
        ({"cpu": "avx3"}, '--cpu: found "avx3"; did you mean "avx'),
        ({"cpu": "an abacus"}, "allowed: avx, avx2"),
        ({"driver": "v550", "cpu": "avx2"}, '--driver: found "v550"; allowed: a driver version'),
        ({"file": "none.json"}, "none.json: cannot be read: No such file or directory"),
    ],
)
def test_wrong_words_are_one_line(words: dict[str, str], says: str) -> None:
    with pytest.raises(BuildPytorchError) as caught:
        described_machine(MATRIX, **words)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_show_known_says_where_each_value_is_from() -> None:
    text = (
        '[gpu.sm120]\ndriver = "580.65"\n[gpu.sm130]\ncapability = "13.0"\n[cpu.avx2]\nlevel = 2\n'
    )
    own = tomllib.loads(f'{text}[[rule]]\nid = "metal"\nreason = "ours"\n')
    rows = {(row.kind, row.key): row for row in defaults.rows(own)}
    old, new = rows["gpu", "sm120"], rows["gpu", "sm130"]
    assert (old.replaced, old.values["driver"], old.values["family"]) == (
        ("driver",), "580.65", "Blackwell",
    )  # fmt: skip
    assert old.source.endswith(", checked 2026-11-21")
    assert (new.replaced, new.source) == (("capability",), "")
    assert rows["cpu", "avx2"].replaced == (), "the value is the known one"
    assert rows["rule", "metal"].values == {"reason": "ours"}
    assert {kind for kind, _ in rows} == {"gpu", "cpu", "pin", "rule", "patch"}


# --- published builds, and which code runs where ---


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
