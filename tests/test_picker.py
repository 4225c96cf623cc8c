"""The picker: its answers and names without a browser."""

from __future__ import annotations

import functools
import json
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import archspec.cpu
import picker_machines
import pytest
from conftest import ONE, PROJECT, WHOLE, Project

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import digits
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.cli.describe_machine import described_machine
from build_pytorch.generate import pages, picker, picker_tables
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.possible import PossibleVariants
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.model import Matrix

KNOWN = known_hardware.load()
MATRIX = matrix_reader.parse(WHOLE)
HOSTILE = "</script><script>window.ran=1</script><img src=x onerror='ran=2'>\"`{{ 7*7 }}"


@functools.cache
def whole_page() -> str:
    return picker.page(MATRIX)


def asked(function: str, matrix: Matrix, argument: Any, folder: Path) -> Any:
    """What a function returns beside the scripts of the page, called with Node."""
    if shutil.which("node") is None:
        pytest.skip("Node is not installed; `nox -s pages` asks the same in a browser")
    page = whole_page() if matrix is MATRIX else picker.page(matrix)
    found = re.search(r'(?s)<script type="application/json" id="facts">(.*?)</script>', page)
    assert found
    scripts = ("picker_answers.js", "picker_reading.js")
    source = "\n".join((PROJECT / "templates/pages" / name).read_text() for name in scripts)
    facts = (
        f"const document = {{ getElementById: () => ({{ textContent: {json.dumps(found[1])} }}) }};"
    )
    call = f"({function.strip()})({json.dumps(argument)})"
    script = folder / "ask.js"
    script.write_text(f"{source}\n{facts}\nprocess.stdout.write(JSON.stringify({call}));")
    done = subprocess.run(["node", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "text", ["whole", "one", pytest.param("all-lines", marks=pytest.mark.slow)]
)
def test_the_page_finds_what_choose_decides(text: str, tmp_path: Path) -> None:
    example = (PROJECT / "examples/all-lines/matrix.toml").read_text()
    matrices = {"one": ONE, "all-lines": example}
    matrix = matrix_reader.parse(matrices[text]) if text in matrices else MATRIX
    machines = {**picker_machines.saved(), **picker_machines.drawn(40, seed=len(text))}
    machines = {name: machine for name, machine in machines.items() if machine.cpu.flags}
    texts = [saved_machines.text_of(machine) for machine in machines.values()]
    found = asked(picker_machines.LOOK_UP, matrix, texts, tmp_path)
    assert picker_machines.differences(matrix, machines, found) == {}


def recommended(fields: dict[str, str]) -> dict[str, Any]:
    """What `recommend` says about typed words, in the form of the page."""
    gpu = (fields["gpu"],)
    options = RecommendOptions(gpu=gpu, cpu=fields["cpu"], driver=fields["driver"])
    try:
        machine, _ = described_machine(options, MATRIX)
    except BuildPytorchError:
        return {"problem": ""}
    for found in machine.gpus:  # what `build --gpu` takes it for
        assert KNOWN.gpu_key(gpu[0]) == f"sm{digits(found.capability or '')}"
    return picker_machines.shown(MATRIX, machine)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU of an ARM machine is taken")
def test_the_page_and_recommend_answer_alike_for_what_people_type(tmp_path: Path) -> None:
    typed = picker_machines.typed(300)
    page = asked(picker_machines.LOOK_UP_TYPED, MATRIX, typed, tmp_path)
    wrong, answered = [], 0
    for fields, mine in zip(typed, page, strict=True):
        wanted = json.loads(json.dumps(recommended(fields)))
        answered += "first" in wanted
        is_same = mine == wanted or any(
            key in mine and mine[key].startswith(wanted.get(key, "\0"))
            for key in ("problem", "command")
        )
        if not is_same:
            wrong.append((fields, mine, wanted))
    assert not wrong
    assert answered > len(typed) / 2


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] "
            "(rev a1)\n00:02.0 VGA compatible controller: Intel Corporation Device a780 (rev 04)",
            {"gpu": "GeForce RTX 4090"},
        ),
        (
            "01:00.0 3D controller [0302]: NVIDIA Corporation GA107M "
            "[GeForce RTX 3050 Mobile / Max-Q] [10de:25a2] (rev a1)",
            {"gpu": "GeForce RTX 3050 Mobile"},
        ),
        (
            "03:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 "
            "[Radeon RX 7900 XT/7900 XTX] (rev c8)",
            {"gpu": "AMD Radeon RX 7900 XT"},
        ),
        ("NVIDIA-SMI has failed because it couldn't communicate", {"driver": "none"}),
    ],
)
def test_what_other_commands_print_is_understood(
    text: str, fields: dict[str, str], tmp_path: Path
) -> None:
    ask = """(text) => makeReader(JSON.parse(document.getElementById("facts").textContent))
      .paste(text)"""
    assert asked(ask, MATRIX, text, tmp_path) == fields


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


def test_short_names_mean_the_same_on_the_page_and_in_recommend(tmp_path: Path) -> None:
    here = {name: KNOWN.gpu_typed(name) for name in TYPED}
    found = {name: (it[0], it[1].capability) if it else None for name, it in here.items()}
    assert found == TYPED
    ask = """(names) => {
      const reader = makeReader(JSON.parse(document.getElementById("facts").textContent));
      return names.map(reader.gpuTyped).map((it) => it && [it.name, it.gpu.capability]);
    }"""
    page = asked(ask, MATRIX, list(TYPED), tmp_path)
    assert [it and tuple(it) for it in page] == list(TYPED.values())


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


def test_a_model_number_that_no_product_has_is_refused_as_on_the_page(tmp_path: Path) -> None:
    typed = [{"gpu": "none", "cpu": name, "driver": ""} for name in NO_CPU]
    typed += [{"gpu": name, "cpu": "Zen 5", "driver": ""} for name in NO_GPU]
    typed += [{"gpu": "RTX 5090D", "cpu": "Ryzen 9 9950X3D", "driver": ""}]
    *here, good = [recommended(fields) for fields in typed]
    *page, good_page = asked(picker_machines.LOOK_UP_TYPED, MATRIX, typed, tmp_path)
    assert here == [{"problem": ""}] * len(here)
    assert [it for it, found in zip(typed, page, strict=False) if not found.get("problem")] == []
    assert good["first"]
    assert good["first"]["id"] == good_page["first"]["id"]


def test_recommend_takes_a_generation_for_an_isa(still: Project) -> None:
    answers = [
        json.loads(still.invoke("recommend", "--gpu", "RTX 4090", "--cpu", cpu, "--json").stdout)
        for cpu in ("zen4", "avx512bf16")
    ]
    assert answers[0]["best"] == answers[1]["best"]
    for none in ("none", "cpu"):
        done = still.invoke("recommend", "--gpu", none, "--cpu", "zen4")
        assert (done.returncode, "Best: cpu-avx512bf16" in done.stdout) == (0, True)
    old = still.invoke("recommend", "--cpu", "nehalem", "--verbose")
    assert (old.returncode, "the CPU lacks avx2" in old.stdout) == (1, True)


def test_the_page_loads_nothing_and_has_a_strict_policy() -> None:
    page = whole_page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"<link[^>]*href=\"(?!data:)|<script[^>]*src=|<img|@import|url\(", page)
    assert not re.search(r"<[a-z][^>]* (on[a-z]+|style)=", page)


def test_values_of_the_matrix_are_text() -> None:
    text = ONE
    for old in ('"Blackwell"', '"RTX 40 series"', '"AVX2"'):
        assert old in text
        text = text.replace(old, json.dumps(HOSTILE), 1)
    page = picker.page(matrix_reader.parse(text))
    assert len(re.findall("<script", page)) == 2
    assert "<img" not in page
    found = re.search(r'(?s)<script type="application/json" id="facts">(.*?)</script>', page)
    assert found
    assert HOSTILE in {cpu["title"] for cpu in json.loads(found[1])["cpus"]}


def test_data_cannot_end_its_element() -> None:
    value = {"a": f"{HOSTILE}<!--]]>\u2028\u2029&amp;\x00"}
    text = str(pages.data(value))
    assert not re.search("[<>&\u2028\u2029\x00]", text)
    assert json.loads(text) == value


def test_each_cell_of_the_map_has_a_state_that_the_matrix_yields() -> None:
    possible = PossibleVariants(MATRIX, None)
    for name in MATRIX.releases:
        table = picker_tables.release_map(possible, name)
        cells = {cell.name: cell for _, _, row in table.rows for cell in row if cell}
        variants = [variant for variant in MATRIX.of_release(name) if not variant.is_wrapper]
        for variant in variants:
            state = "impossible" if variant.impossible else "listed"
            assert cells[variant.id].state == state
        listed = [cell for cell in cells.values() if cell.state == "listed"]
        assert len(listed) == sum(not v.impossible for v in variants)
        assert {cell.state for cell in cells.values()} <= picker_tables.STATES.keys()
    table = picker_tables.release_map(possible, "cuda13_0")
    cells = {cell.name: cell for _, _, row in table.rows for cell in row if cell}
    assert cells["cuda13_0/sm80-armv9"].state == "addable"
    assert cells["cuda13_0/sm61-avx2"].state == "never"
