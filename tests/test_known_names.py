"""What people call GPUs and CPUs: `recommend --gpu` and `--cpu` know what they mean."""

from __future__ import annotations

import platform
import tomllib
from typing import Any

import archspec.cpu
import pytest
from conftest import PROJECT, WHOLE

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware.described import described_machine
from build_pytorch.matrix import known_hardware, matrix_reader

KNOWN = known_hardware.load()
MATRIX = matrix_reader.parse(WHOLE)


def test_each_offered_product_is_known_by_its_name() -> None:
    for key, gpu in KNOWN.gpu.items():
        assert gpu.offered, key
        for name in gpu.offered:
            found = KNOWN.gpu_named(name)
            assert found is not None, name
            assert found[0] == key, name


TYPED = {
    "RTX4090": ("RTX 4090", "8.9"),
    "rtx4070tisuper": ("RTX 4070 Ti SUPER", "8.9"),
    "NvidiaGeForceRTX4090": ("RTX 4090", "8.9"),
    "nvidia rtx-4090": ("RTX 4090", "8.9"),
    "geforce 4090": ("RTX 4090", "8.9"),
    "4090": ("RTX 4090", "8.9"),
    "1080ti": ("GTX 1080 Ti", "6.1"),
    "a4000": ("RTX A4000", "8.6"),
    "rtxa4500": ("rtxa4500", "8.6"),
    "dgxspark": ("DGX Spark", "12.1"),
    "RTX 4090 Laptop GPU": ("RTX 4090 Laptop GPU", "8.9"),
    "rtx6000ada": ("RTX 6000 Ada", "8.9"),
    "gtx750ti": ("GTX 750 Ti", "5.0"),
    # the ends of names of several architectures, or of none
    **dict.fromkeys(("6000", "5000", "90", "9999", "rtx", "nvidia", "", "a 4", "ti")),
}


@pytest.mark.parametrize("name", TYPED)
def test_a_short_name_means_a_product_or_none(name: str) -> None:
    found = KNOWN.gpu_typed(name)
    assert (found and (found[0], found[1].capability)) == TYPED[name]


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


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("zen4", "zen4"),
        ("Zen 2", "zen3"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "zen4"),
        ("AMD Ryzen 7 7735HS with Radeon Graphics", "zen3"),
        ("AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "zen4"),
        ("Ryzen 7 5800X3D", "zen3"),
        ("Ryzen 9 9955HX3D", "zen5"),
        ("AMD Ryzen AI 9 HX 370 w/ Radeon 890M", "zen5"),
        ("AMD RYZEN AI MAX+ PRO 395 w/ Radeon 8060S", "zen5"),
        ("AMD Ryzen Threadripper PRO 5995WX 64-Cores", "zen3"),
        ("AMD EPYC 7763 64-Core Processor", "zen3"),
        ("AMD EPYC 9654 96-Core Processor", "zen4"),
        ("AMD EPYC 9755", "zen5"),
        ("AMD FX(tm)-8350 Eight-Core Processor", "piledriver"),
        ("Intel(R) Core(TM) i7-3770 CPU @ 3.40GHz", "sandybridge"),
        ("Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz", "skylake"),
        ("11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz", "icelake"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "alderlake"),
        ("Intel(R) Core(TM) Ultra 9 285K", "alderlake"),
        ("Intel(R) Core(TM) i3-N305", "alderlake"),
        ("11th Gen Intel(R) Core(TM) i5-1145GRE @ 2.60GHz", "icelake"),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "haswell"),
        ("Intel(R) Xeon(R) CPU E5-2670 v2 @ 2.50GHz", "sandybridge"),
        ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", "skylake_sp"),
        ("Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", "cascadelake"),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "icelake"),
        ("Intel(R) Xeon(R) Platinum 8480+", "sapphirerapids"),
        ("Intel(R) Xeon(R) 8570", "sapphirerapids"),
        ("Intel(R) Xeon(R) 6780E", "sierraforest"),
        ("Intel(R) Xeon(R) W-2145 CPU @ 3.70GHz", "skylake_sp"),
        ("Intel(R) Celeron(R) N4000 CPU @ 1.10GHz", "nehalem"),
        ("Intel(R) N100", "alderlake"),
        ("Intel(R) Core(TM)2 Duo CPU E8400", "nehalem"),
        ("x86-64-v3", "haswell"),
        ("skylake-avx512", "skylake_sp"),
        ("Raspberry Pi 5", "neoverse_n1"),
        ("Graviton3", "neoverse_v1"),
        ("Neoverse-N1", "neoverse_n1"),
        ("Grace", "neoverse_v2"),
        ("Apple M2 Max", "apple"),
    ],
)
def test_a_cpu_is_known_by_its_name(name: str, key: str) -> None:
    assert KNOWN.processor_named(name) is KNOWN.processor[key]


@pytest.mark.parametrize("name", ["", "ryzen", "core i7", "486", "x" * 10_000, "zen9000"])
def test_another_cpu_is_unknown(name: str) -> None:
    assert KNOWN.processor_named(name) is None


NO_CPU = (
    *("Ryzen 9 99500X", "99500X", "Ryzen 10950X", "Ryzen AI 99999", "Zen 6", "Zen 55", "FX-83500"),
    *("Core i9-99999K", "i7-119000", "i13-12900K", "Core Ultra 9 99999K", "99th gen", "139000K"),
    *("Xeon 99999", "Xeon Gold 61480", "Xeon E5-2690 v9", "EPYC 96540", "Graviton 5", "Apple M99"),
)
NO_GPU = (
    *("RTX 50900", "RTX 5099", "RTX 5010", "50900", "RTX 3040", "GTX 1690", "GTX 10800", "H1000"),
    *("RTX A9999", "RTX PRO 9999", "RTX 9999 Ada", "Quadro RTX 9999", "Quadro P9000", "L400"),
)


@pytest.mark.parametrize(
    ("gpu", "cpu"), [*(("none", cpu) for cpu in NO_CPU), *((gpu, "Zen 5") for gpu in NO_GPU)]
)
def test_a_model_number_that_no_product_has_is_refused(gpu: str, cpu: str) -> None:
    with pytest.raises(BuildPytorchError, match=r"^--(gpu|cpu): found "):
        described_machine(MATRIX, gpu=gpu, cpu=cpu)


MACHINES = PROJECT / "tests/machines"
SPARK, ZEN4 = str(MACHINES / "dgx-spark.json"), str(MACHINES / "rtx5090-zen4.json")
needs_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the CPU of an ARM machine is taken"
)
DESCRIBED: list[Any] = [
    ({"gpu": "RTX4090", "cpu": "avx2", "driver": "550"}, "x86_64-linux", ["8.9"], "550", None),
    ({"gpu": "4090", "cpu": "zen4"}, "x86_64-linux", ["8.9"], None, None),
    ({"gpu": "8.6, RTX5090", "cpu": "avx512"}, "x86_64-linux", ["8.6", "12.0"], None, None),
    ({"gpu": "None", "cpu": "zen4"}, "x86_64-linux", [], None, None),
    ({"gpu": "cpu", "cpu": "Graviton3"}, "aarch64-linux", [], None, None),
    ({"gpu": "A100", "cpu": "avx2", "driver": "12.8"}, "x86_64-linux", ["8.0"], None, "12.8"),
    ({"file": ZEN4, "driver": "550"}, "x86_64-linux", ["12.0"], "550", None),
    ({"file": ZEN4, "driver": "unknown"}, "x86_64-linux", ["12.0"], None, None),
    ({"file": ZEN4, "gpu": "0"}, "x86_64-linux", ["12.0"], "580.95.05", "13.0"),
    ({"gpu": "Radeon RX 7900 XTX", "cpu": "avx2"}, "x86_64-linux", [], None, None),
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
    assert bool(here.other_gpus) == ("Radeon" in words.get("gpu", ""))


def test_a_cpu_has_the_flags_of_its_isa_and_of_the_lower_ones() -> None:
    assert "f16c" in described_machine(MATRIX, cpu="zen4").cpu.flags.split()
    assert "avx512_bf16" in described_machine(MATRIX, cpu="zen4").cpu.flags.split()
    assert "avx512f" not in described_machine(MATRIX, cpu="avx2").cpu.flags.split()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"gpu": "RTX 4095", "cpu": "avx2"}, "an unknown GPU; did you mean RTX 4090?"),
        ({"gpu": "5000", "cpu": "avx2"}, "did you mean RTX PRO 5000 Blackwell or RTX 5000 Ada"),
        ({"gpu": "dgxspark", "cpu": "zen4"}, "exists on aarch64-linux only"),
        ({"gpu": "GB10", "file": ZEN4}, "aarch64-linux only, and the machine is x86_64-linux"),
        ({"gpu": "one", "cpu": "avx2"}, '--gpu: found "one", an unknown GPU; give its compute'),
        ({"gpu": "x" * 5000, "cpu": "avx2"}, f'--gpu: found "{"x" * 36}", an unknown GPU; give'),
        ({"gpu": "1" * 5000, "cpu": "avx2"}, f'--gpu: found "{"1" * 36}", an unknown GPU'),
        ({"gpu": "9", "file": SPARK}, '--gpu: found "9"; the GPUs of the machine: 0'),
        ({"gpu": "0", "cpu": "avx2"}, '--gpu: found "0"; the GPUs of the machine: none'),
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
    rows = {(row.kind, row.key): row for row in known_hardware.rows(own)}
    assert rows["gpu", "sm120"].replaced == ("driver",)
    assert "580.65" in rows["gpu", "sm120"].value
    assert rows["gpu", "sm120"].source.endswith(", checked 2026-11-21")
    assert (rows["gpu", "sm130"].replaced, rows["gpu", "sm130"].source) == (("capability",), "")
    assert rows["cpu", "avx2"].replaced == (), "the value is the known one"
    assert rows["rule", "metal"].value == "ours"
    assert rows["gpu", "sm35"].replaced == ()
    kinds = {kind for kind, _ in rows}
    assert kinds == {"gpu", "cpu", "pin", "rule", "patch"}


PRODUCTS = {
    "6.0": ["Tesla P100-PCIE-16GB"],
    "6.1": ["Tesla P40"],
    "7.0": ["NVIDIA TITAN V"],
    "7.5": ["Quadro RTX 6000", "NVIDIA GeForce RTX 2080 Ti", "NVIDIA TITAN RTX", "GRID T4-16Q"],
    "8.0": ["NVIDIA A100-SXM4-40GB"],
    "8.6": ["NVIDIA RTX A6000", "NVIDIA GeForce RTX 2050"],
    "8.7": ["Orin (nvgpu)"],
    "8.9": ["rtx 4090 laptop gpu", "NVIDIA RTX 6000 Ada Generation", "NVIDIA L40S"],
    "9.0": ["NVIDIA GH200 480GB"],
    "12.0": ["NVIDIA RTX PRO 6000 Blackwell Workstation Edition"],
    "12.1": ["NVIDIA GB10"],
}


def test_a_product_is_known_by_its_name() -> None:
    for capability, names in PRODUCTS.items():
        for name in names:
            found = KNOWN.gpu_named(name)
            assert (found and found[1].capability) == capability, name
    for name in ("RX 7900 XTX", "AMD Radeon RX 7900 XTX", "MI300X", "Radeon VII"):
        assert KNOWN.other_vendor(name) == "AMD", name
    for name in ("", "RTX 9999", "4090", "A1000000", "nvidia", "x" * 10_000):
        assert (KNOWN.gpu_named(name), KNOWN.other_vendor(name)) == (None, ""), name
