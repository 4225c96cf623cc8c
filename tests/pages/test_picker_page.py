"""The picker in a real browser: `nox -s pages` runs these tests."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import picker_machines
import pytest
from conftest import PROJECT, WHOLE
from page_browser import Opened, require_accessible
from playwright.sync_api import Browser, Page

from build_pytorch.base import paths
from build_pytorch.generate import picker
from build_pytorch.hardware import saved_machines
from build_pytorch.matrix import matrix_reader

MATRIX: Final = matrix_reader.parse(WHOLE)
HOSTILE: Final = "</script><script>window.ran=1</script><img src=x onerror='window.ran=2'>\"`"
WIDTHS: Final = (360, 768, 1440)
DRAWN: Final = 300

TABLE: Final = """\
Sun Nov 22 09:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.163.01             Driver Version: 550.163.01     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |
| 30%   41C    P8             23W /  450W |     315MiB /  24564MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX 3090        Off |   00000000:02:00.0 Off |                  N/A |
|  0%   38C    P8             18W /  350W |       2MiB /  24576MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|=========================================================================================|
|    0   N/A  N/A      2211      G   /usr/lib/xorg/Xorg                            121MiB |
+-----------------------------------------------------------------------------------------+
"""
WINDOWS: Final = """\
| NVIDIA-SMI 560.35.02              Driver Version: 560.94         CUDA Version: 12.6     |
|   0  NVIDIA GeForce RTX 4070        On  |   00000000:01:00.0  On |                  N/A |
"""
MIG: Final = """\
GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-00000000-0000-0000-0000-000000000000)
  MIG 3g.20gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-000000000000)
  MIG 3g.20gb     Device  1: (UUID: MIG-00000000-0000-0000-0000-000000000001)
"""
QUERY: Final = """\
==============NVSMI LOG==============

Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 2
GPU 00000000:01:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Product Brand                         : NVIDIA
GPU 00000000:02:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
"""
CSV: Final = """\
index, name, compute_cap, driver_version
0, NVIDIA L40S, 8.9, 570.172.08
1, NVIDIA Next, 13.0, 570.172.08
"""
LSCPU: Final = """\
Architecture:             x86_64
Model name:               Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz
Flags:                    fpu sse2 avx f16c fma avx2 avx512f avx512dq avx512bw avx512vl avx512_vnni
"""
CPUINFO: Final = """\
processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd evtstrm fphp asimdhp asimddp sve sve2
CPU implementer\t: 0x41

processor\t: 1
Features\t: fp asimd evtstrm fphp asimdhp asimddp
CPU implementer\t: 0x41
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the whole matrix."""
    path = tmp_path_factory.mktemp("site") / "index.html"
    path.write_text(picker.page(MATRIX))
    return path


@pytest.fixture
def opened(browser: Browser, site: Path) -> Opened:
    return Opened(browser, site)


def shown(page: Page, name: str) -> str:
    """The text of an element of the answer; empty if there is none."""
    found = page.locator(f"#{name}")
    return (found.text_content() or "") if found.count() else ""


FIELDS: Final = ("gpu", "cpu", "driver")

EACH: Final = """
([way, inputs, names]) => inputs.map((input) => {
  const form = document.getElementById("machine");
  const area = document.getElementById("paste");
  const fields = ["gpu", "cpu", "driver"].map((name) => form.elements[name]);
  if (way === "paste alone") for (const field of fields) field.value = "";
  const start = performance.now();
  if (way.startsWith("paste")) {
    area.value = input;
    area.dispatchEvent(new Event("input", { bubbles: true }));
  } else if (way === "address") {
    history.replaceState(null, "", input);
    dispatchEvent(new PopStateEvent("popstate"));
  } else {
    for (const [name, text] of Object.entries(input)) form.elements[name].value = text;
    form.elements.gpu.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const seconds = (performance.now() - start) / 1000;
  const texts = names.map((name) => document.getElementById(name)?.textContent ?? "");
  return { texts, seconds, address: location.hash || "#",
    fields: fields.map((field) => field.value) };
})
"""
"""A script: what the page shows for each of many inputs, by paste, address or typing."""


def each(page: Page, way: str, inputs: Sequence[object], *names: str) -> list[dict[str, Any]]:
    """The texts of elements with `names`, the fields and the address after each input."""
    found: list[dict[str, Any]] = page.evaluate(EACH, [way, inputs, names])
    assert all(one["seconds"] < 2 for one in found)
    return found


def test_the_page_finds_what_choose_decides_for_more_than_200_machines(opened: Opened) -> None:
    """Saved and drawn machines, pasted as descriptions."""
    machines = {
        name: machine
        for name, machine in {**picker_machines.saved(), **picker_machines.drawn(DRAWN)}.items()
        if machine.cpu.flags  # without them the page asks for the CPU
    }
    texts = [saved_machines.text_of(machine) for machine in machines.values()]
    found = opened.page.evaluate(picker_machines.LOOK_UP, texts)
    wrong = picker_machines.differences(MATRIX, machines, found)
    answered = sum("best" in one for one in found)
    print(f"{len(machines) - len(wrong)} of {len(machines)} machines agree; {answered} answers")
    assert wrong == {}
    assert answered >= 200


def test_the_page_shows_the_answer_also_from_the_address_alone(opened: Opened) -> None:
    machines = [machine for machine in picker_machines.saved().values() if machine.cpu.flags]
    expected = []
    for machine in machines:
        wanted = picker_machines.shown(MATRIX, machine)
        first, better = wanted.get("first"), wanted.get("better")
        name = first["id"] if first else "none" if "first" in wanted else ""
        why = f"Why: {first['reason']}." if first else ""
        expected.append([name, why, better["id"] if better else ""])
    texts = [saved_machines.text_of(machine) for machine in machines]
    pasted = each(opened.page, "paste", texts, "first", "first-reason", "better")
    assert [one["texts"] for one in pasted] == expected
    addresses = [one["address"] for one in pasted]
    again = each(opened.page, "address", addresses, "first", "first-reason", "better")
    assert [one["texts"] for one in again] == expected


TYPED: Final = [
    ("rtx4090", "zen4", "580.95.05", "cuda13_0/sm89-avx512bf16"),
    ("4090", "Zen 4", "550", "cuda12_8/sm89-avx512bf16"),
    ("RTX 4090 Laptop", "Ryzen 9 7945HX", "580.95.05", "cuda13_0/sm89-avx512bf16"),
    ("GB10", "DGX Spark", "580.95.05", "cuda13_0/sm121-armv9"),
    ("L40S", "Intel(R) Xeon(R) Gold 6248", "580.95.05", "cuda13_0/sm89-avx512vnni"),
    ("2x RTX 3090, A40", "avx2", "v580.95.05", "cuda13_0/sm86-avx2"),
    ("8.6", "AVX2", "NVIDIA driver 580.95.05", "cuda13_0/sm86-avx2"),
    ("none", "haswell", "", "cuda13_0/cpu-avx2"),
    ("", "haswell", "", "cuda13_0/cpu-avx2"),
    ("RX 7900 XTX", "zen3", "", "cuda13_0/cpu-avx2"),
    ("RTX 4070", "zen3", "560.94 CUDA 12.6 WSL", "cuda12_8/sm89-avx2"),
    ("A100", "flags : fpu sse2 avx avx2 fma f16c", "580.95.05", "cuda13_0/sm80-avx2"),
    ("GTX 1080", "core i7-3770", "580.95.05", "cuda12_8/sm61-avx"),
    ("none", "nehalem", "", "none"),
    ("GeForce 4090", "7950x", "580.95.05", "cuda13_0/sm89-avx512bf16"),
    ("4090 x2", "i9 13900K", "580.95.05", "cuda13_0/sm89-avx2"),
    ("1080ti", "9900K", "580.95.05", "cuda12_8/sm61-avx2"),
    ("igpu", "13th gen", "", "cuda13_0/cpu-avx2"),
    ("GH200", "", "", "cuda13_0/sm90-armv9"),  # the CPU of its machine is known
    ("GB200", "Grace", "580.95.05", "cuda13_0/sm100-armv9"),
    ("12.1", "", "580.95.05", "cuda13_0/sm121-armv9"),
    ("RTX 4090", "zen3", "12.8", "cuda12_8/sm89-avx2"),  # a version of CUDA, and no driver
    ("RTX 4090", "zen3", "13.0", "cuda13_0/sm89-avx2"),
]


def test_what_a_person_types_is_understood(opened: Opened) -> None:
    typed = [dict(zip(FIELDS, fields, strict=True)) for *fields, _ in TYPED]
    found = each(opened.page, "type", typed, "first")
    assert [one["texts"] for one in found] == [[best] for *_, best in TYPED]
    assert opened.messages == []


PASTED: Final = [
    (TABLE, "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 3090", "", "550.163.01 CUDA 12.4"),
    (WINDOWS, "NVIDIA GeForce RTX 4070", "", "560.94 CUDA 12.6 WSL2"),
    (MIG, "NVIDIA A100-PCIE-40GB MIG 3g.20gb", "", ""),
    (QUERY, "2x NVIDIA H100 80GB HBM3", "", "580.95.05 CUDA 13.0"),
    (CSV, "NVIDIA L40S, NVIDIA Next [13.0]", "", "570.172.08"),
    (CSV.split("\n", 1)[1], "NVIDIA L40S", "", "570.172.08"),
    ("NVIDIA L4, 535.183.01", "NVIDIA L4", "", "535.183.01"),
    (LSCPU, "", "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", ""),
    (CPUINFO, "", "armv8_2", ""),
    (
        f"{TABLE}\n{LSCPU}",
        "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 3090",
        "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz",
        "550.163.01 CUDA 12.4",
    ),
    ("fpu sse2 avx avx2 fma f16c", "", "avx2", ""),
    ("\n" * 20_000 + "Product Name : NVIDIA L4\n" + " " * 20_000, "NVIDIA L4", "", ""),
]


def test_what_a_person_pastes_fills_the_fields(opened: Opened) -> None:
    found = each(opened.page, "paste alone", [text for text, *_ in PASTED], "paste-wrong")
    assert [(one["fields"], one["texts"]) for one in found] == [
        (fields, [""]) for _, *fields in PASTED
    ]
    assert opened.messages == []


def test_other_text_is_named_and_changes_nothing(opened: Opened) -> None:
    blank = "\n" * 20_000 + "!"
    opened.page.fill("#gpu", "RTX 4090")
    few = ["hello", "{", '{"format": 3}', HOSTILE, "No devices were found"]
    found = each(opened.page, "paste", [*few, "[" * 50_000, "\0" * 99, blank], "paste-wrong")
    for one in found:
        assert "Nothing in this text" in one["texts"][0]
        assert one["fields"] == ["RTX 4090", "", ""]
    assert opened.messages == []


def test_what_is_unknown_is_named_beside_its_field(opened: Opened) -> None:
    wrong = [f"{name}-wrong" for name in FIELDS]
    unknown = {"gpu": "RTX 9999", "cpu": "486", "driver": "new"}
    both = each(opened.page, "type", [unknown, {"gpu": "RTX 409"}], *wrong)
    says = ("unknown GPU", "unknown CPU", "not a driver version")
    assert all(text in found for text, found in zip(says, both[0]["texts"], strict=True))
    assert "Did you mean RTX 4090" in both[1]["texts"][0]
    assert opened.page.get_attribute("#gpu", "aria-invalid") == "true"


def test_without_a_cpu_the_page_asks_for_it_and_offers_each(opened: Opened) -> None:
    page = opened.page
    page.fill("#gpu", "RTX 4090")
    rows = page.locator("#answer tbody tr")
    assert rows.count() == 5
    rows.filter(has_text="Haswell").locator("a").click()
    assert shown(page, "first") == "cuda13_0/sm89-avx2"
    page.fill("#cpu", "some Ryzen")
    assert "unknown CPU" in shown(page, "cpu-wrong")
    assert page.locator("#answer tbody tr").count() == 5
    page.fill("#cpu", "")
    page.fill("#gpu", "Xavier")  # which brings a CPU without an ISA of the table
    assert shown(page, "first") == "none"


def test_a_gpu_of_arm_machines_with_another_cpu_is_refused(opened: Opened) -> None:
    pairs = (("GB10", "armv9"), ("NVIDIA GH200 480GB", "armv9"), ("T4G", "armv8_2"))
    for gpu, isa in pairs:
        typed = [{"gpu": gpu, "cpu": cpu} for cpu in ("Core i9-13900K", isa)]
        refused, found = each(opened.page, "type", typed, "gpu-wrong", "answer", "first")
        assert refused["texts"][0].startswith(f"{gpu} exists on aarch64-linux only")
        assert refused["texts"][1:] == ["", ""]
        assert found["texts"][0] == ""
        assert isa in found["texts"][2]


ASKED: Final = {
    "gpu=2x+RTX+3090,+RTX+5090&cpu=zen4&driver=580": (
        "--gpu 'RTX 3090' --gpu 'RTX 5090' --cpu avx512bf16 --driver 580"
    ),
    "gpu=RTX+3090,+8.9&cpu=nehalem": "--gpu 'RTX 3090' --gpu 8.9 --cpu nehalem",
    "gpu=13.0&cpu=zen4&driver=12.8": "--gpu 13.0 --cpu avx512bf16 --driver 12.8",
    "gpu=it's+[13.0]&cpu=zen4": "--gpu 13.0 --cpu avx512bf16",
    "gpu=A100&cpu=flags:+avx512f+avx512dq+avx512vl+avx512bw+fma+fpu": "",
    "gpu=RTX+3090,+V100&cpu=zen4&driver=WSL": "",
}


def test_what_the_table_does_not_have_gets_the_command(opened: Opened, site: Path) -> None:
    page = opened.page
    for address, options in ASKED.items():
        page.goto(f"{site.as_uri()}#{address}")
        wanted = [f"invoke recommend {options}".strip()]
        assert page.locator("#answer .commands code").all_text_contents() == wanted, address
    assert opened.messages == []


def test_companions_are_built_with_their_build(opened: Opened) -> None:
    page = opened.page
    page.fill("#gpu", "L40S")
    page.fill("#cpu", "avx2")
    commands = page.locator("#answer .more code").all_text_contents()
    assert any("-A torchvision-python313-cuda13_0-sm89-avx2" in text for text in commands)
    assert any(text.startswith("invoke build cuda13_0/sm89-avx2+torchvision") for text in commands)
    assert not any("install" in text for text in commands)  # nobody may have published it


def test_the_address_carries_the_state_and_back_returns(browser: Browser, site: Path) -> None:
    opened = Opened(browser, site)
    page = opened.page
    page.goto(f"{site.as_uri()}#gpu=rtx4090&cpu=zen4&driver=550")
    assert shown(page, "first") == "cuda12_8/sm89-avx512bf16"
    page.fill("#driver", "580.95.05")
    page.locator("#driver").blur()
    assert page.url.endswith("#gpu=rtx4090&cpu=zen4&driver=580.95.05")
    assert shown(page, "first") == "cuda13_0/sm89-avx512bf16"
    page.locator(".examples a", has_text="DGX Spark").click()
    assert shown(page, "first") == "cuda13_0/sm121-armv9"
    page.go_back()
    assert shown(page, "first") == "cuda13_0/sm89-avx512bf16"
    page.go_back()
    assert (page.input_value("#driver"), shown(page, "first")) == (
        "550",
        "cuda12_8/sm89-avx512bf16",
    )
    page.go_forward()
    assert page.input_value("#driver") == "580.95.05"
    page.click("button[type=reset]")
    assert [page.input_value(f"#{name}") for name in FIELDS] == ["", "", ""]
    assert page.locator("#answer *").count() == 0
    assert opened.messages == []


HOSTILE_ADDRESSES: Final = [
    f"gpu={HOSTILE}&cpu={HOSTILE}&driver={HOSTILE}",
    f"gpu={HOSTILE} [8.9]&cpu=zen4&driver=580.95.05",
    f"gpu=other: {HOSTILE}&cpu=zen4",
    "gpu=%ff%00%E2%80%A8&cpu=__proto__&driver=constructor",
    "gpu=__proto__&cpu=constructor&driver=999999999",
    "gpu=none&cpu=toString",
    "gpu=toString&cpu=hasOwnProperty&driver=__proto__",
    f"gpu={'9x RTX 4090, ' * 2000}&cpu=zen4",
    "gpu=999x RTX 4090&cpu=zen4&driver=0",
    "=&==&gpu&cpu=",
    "gpu=RTX 4090&cpu=a-b flags: x&driver=1.2.3.4",
]


def test_a_hostile_address_is_text(opened: Opened, site: Path) -> None:
    page = opened.page
    for address in HOSTILE_ADDRESSES:
        page.goto(f"{site.as_uri()}#{address}")
        assert page.evaluate("window.ran") is None
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 2
    page.reload()
    page.wait_for_selector("form:visible")
    assert opened.messages == []
    assert {request.partition("#")[0] for request in opened.requests} == {site.as_uri()}


def test_hostile_values_of_the_matrix_are_text(browser: Browser, tmp_path: Path) -> None:
    text = WHOLE.replace('"RTX 40 series"', json.dumps(HOSTILE), 1)
    text = text.replace('title = "AVX2"', f"title = {json.dumps(HOSTILE)}", 1)
    path = tmp_path / "index.html"
    path.write_text(picker.page(matrix_reader.parse(text)))
    opened = Opened(browser, path)
    page = opened.page
    page.fill("#gpu", "RTX 4090")
    page.fill("#cpu", "avx2")
    assert HOSTILE in shown(page, "first-reason")
    assert page.locator("td a", has_text=HOSTILE).count() > 0
    assert page.locator("img").count() == 0
    assert page.evaluate("window.ran") is None
    assert opened.messages == []
    assert opened.requests == [path.as_uri()]


def test_the_map_is_moved_through_with_the_keys_and_leads_to_answers(opened: Opened) -> None:
    page = opened.page
    cell = page.locator(".map a[tabindex='0']").first
    cell.focus()
    tip = page.locator(".map a:focus .tip")
    assert "GB10 (DGX Spark)" in (tip.text_content() or "")
    box = tip.bounding_box()
    assert box
    assert box["height"] > 20
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.locator(".map a:focus b").text_content() == "cuda13_0/sm120-avx2"
    assert page.locator(".map a[tabindex='0']").count() == len(MATRIX.releases)
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert shown(page, "first") == "cuda13_0/sm120-avx2"
    assert page.locator(".map a[aria-current] b").text_content() == "cuda13_0/sm120-avx2"


def test_the_whole_page_works_with_the_keyboard_alone(opened: Opened) -> None:
    page = opened.page
    keys = page.keyboard
    keys.press("Tab")
    assert page.locator(":focus").text_content() == "Skip to the content"
    keys.press("Enter")
    keys.press("Tab")
    assert page.locator(":focus").get_attribute("id") == "gpu"
    keys.type("rtx 4090")
    keys.press("Tab")
    keys.type("ryzen 9 7950x")
    keys.press("Tab")
    keys.type("580.95.05")
    keys.press("Enter")
    page.locator("#first").wait_for()  # a busy browser may answer after the key
    assert shown(page, "first") == "cuda13_0/sm89-avx512bf16"
    assert page.url.endswith("#gpu=rtx+4090&cpu=ryzen+9+7950x&driver=580.95.05")
    seen = []
    for _ in range(40):
        keys.press("Tab")
        seen.append(page.evaluate("document.activeElement.outerHTML.slice(0, 60)"))
        if "Copy: Build and check" in seen[-1]:
            break
    assert "Copy: Build and check" in seen[-1]
    keys.press("Enter")
    page.locator(":focus", has_text="Copied").wait_for()  # the clipboard answers later
    assert opened.messages == []


STATES: Final = (
    "",
    "#gpu=RTX+4090",
    "#gpu=RTX+9999&cpu=486&driver=new",
    "#gpu=rtx4090&cpu=zen4&driver=550",
    "#gpu=RTX+3090,+RTX+5090,+V100&cpu=zen3&driver=580",
    "#gpu=none&cpu=nehalem",
)


def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(
    browser: Browser, site: Path
) -> None:
    page = Opened(browser, site, bypass_csp=True).page
    for number, state in enumerate(STATES):
        page.goto(f"{site.as_uri()}{state}")
        if state == STATES[-1]:
            page.locator(".map a").nth(8).focus()  # which shows a tip
        require_accessible(page, WIDTHS, number)


def test_without_scripts_the_tables_are_there(browser: Browser, site: Path) -> None:
    opened = Opened(browser, site, java_script_enabled=False)
    page = opened.page
    assert page.locator(".no-script").is_visible()
    assert not page.locator("form").is_visible()
    assert page.locator(".map").count() == len(MATRIX.releases)
    cell = page.locator(".map td.listed a").first
    assert cell.get_attribute("tabindex") is None
    cell.focus()
    assert "cuda13_0/" in (page.locator(".map a:focus .tip").text_content() or "")
    assert page.locator(".cpus tbody tr").count() == 8
    assert opened.messages == []
    assert opened.requests == [site.as_uri()]


def test_the_page_is_usable_soon_and_an_answer_takes_no_time(opened: Opened, site: Path) -> None:
    session = opened.context.new_cdp_session(opened.page)
    session.send("Performance.enable")

    def used() -> float:
        """Seconds of CPU of the page's thread: unlike a clock, other work does not slow it."""
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "ThreadTime")

    start = used()
    opened.page.goto(f"{site.as_uri()}#gpu=rtx4090&cpu=zen4&driver=550")
    opened.page.reload(wait_until="domcontentloaded")
    usable = used() - start
    start = used()
    opened.page.fill("#driver", "580.95.05")
    answered = used() - start
    print(f"{site.stat().st_size >> 10} KiB; usable after {usable:.2f} s of CPU, "
          f"an answer takes {answered:.2f} s")  # fmt: skip
    assert site.stat().st_size < 400 << 10
    assert usable < 2
    assert answered < 1


def test_the_picture_in_the_docs_is_small(browser: Browser) -> None:
    picture = PROJECT / "docs/images/picker.png"
    if os.environ.get("WRITE_PICTURES"):
        opened = Opened(browser, PROJECT / paths.PICKER, viewport={"width": 1100, "height": 760})
        opened.page.goto(f"{(PROJECT / paths.PICKER).as_uri()}#gpu=RTX+4090&cpu=Zen+4&driver=550")
        opened.page.evaluate("scrollTo(0, 0)")
        opened.page.screenshot(path=picture)
    assert 10_000 < picture.stat().st_size < 200_000
