"""The index: the rules of PEP 825, what it says of machines, what may be in it."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import picker_machines
import pytest
from conftest import ONE, PROJECT, WHOLE, Project
from sample_fleet import LAST, SampleFleet
from test_picker import whole_page
from test_rules import MIXED
from variantlib.models.variant import VariantProperty
from variantlib.resolver.lib import filter_variants
from variantlib.variants_json import VariantsJson

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import digits
from build_pytorch.hardware import index
from build_pytorch.hardware.choose import choose
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.hardware.verdicts import Obstacle, driver_limit, driver_need
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import ledger

MATRIX = matrix_reader.parse(WHOLE)
NIGHTLY = matrix_reader.parse((PROJECT / "matrix.toml").read_text())
ONE_KIND = [
    name
    for name, machine in picker_machines.saved().items()
    if len({gpu.capability for gpu in machine.gpus}) < 2
]
"""Machines for which one wheel would be chosen."""
FAT = matrix_reader.parse(WHOLE + MIXED)


@functools.cache
def encoded(matrix: Matrix) -> bytes:
    """The index of a matrix."""
    return msgspec.json.encode(index.index_of(matrix, index.packages(matrix)))


def document(matrix: Matrix) -> dict[str, Any]:
    """The index of a matrix as programs read it."""
    found: dict[str, Any] = json.loads(encoded(matrix))
    return found


@pytest.mark.parametrize("matrix", [MATRIX, NIGHTLY, FAT], ids=["whole", "nightly", "fat"])
def test_the_index_has_the_form_of_pep_825(matrix: Matrix) -> None:
    """As its section "Variant metadata" says; the reference implementation reads it."""
    found = document(matrix)
    possible = {variant.id for variant in matrix.variants if not variant.impossible}
    labels = {it["label"]: key for key, it in found["build-pytorch"]["packages"].items() if
              it.get("label")}  # fmt: skip
    assert set(labels) == set(found["variants"])
    assert set(labels.values()) == possible
    assert found["default-priorities"].keys() == {"namespace"}
    seen = set()
    for label, namespaces in found["variants"].items():
        assert re.fullmatch("[0-9a-z_.]{1,16}", label)
        assert namespaces, f"{label}: only the label null has no properties"
        assert set(namespaces) <= set(found["default-priorities"]["namespace"])
        for features in namespaces.values():
            assert all(re.fullmatch("[a-z0-9_]+", name) for name in features)
            for values in features.values():
                assert values
                assert len(set(values)) == len(values)
                assert all(re.fullmatch("[a-z0-9_.]+", value) for value in values)
        seen.add(json.dumps(namespaces))
    assert len(seen) == len(possible), "a label is one set of properties"
    assert set(VariantsJson(found).variants) == set(found["variants"])


def test_a_gpu_variant_has_its_code_and_the_cuda_of_its_driver() -> None:
    of = {key: it["label"] for key, it in document(FAT)["build-pytorch"]["packages"].items() if
          "label" in it}  # fmt: skip
    assert document(FAT)["variants"][of["cuda12_8/sm86_120-avx2"]] == {
        "nvidia": {
            "sm_arch": ["86_real", "120_real", "120_virtual"],
            "cuda_version_lower_bound": ["12.8"],
        },
        "x86_64": {flag: ["on"] for flag in ("avx2", "fma", "f16c")},
        "build_pytorch": {"release": ["cuda12_8"]},
    }


def test_two_variants_with_one_label_are_an_error_and_none_is_dropped() -> None:
    """The digests of both ids begin with the same 32 bits."""
    names = {"cuda13_0": "release53208", "cuda12_8": "release123801"}
    text = re.sub(r"(?<=release\.)cuda1\w+", lambda found: names[found[0]], WHOLE)
    what = "release53208/cpu-avx2 and release123801/cpu-avx2 have one label in the index"
    with pytest.raises(BuildPytorchError, match=what):
        encoded(matrix_reader.parse(text))


def supported(matrix: Matrix, machine: Machine) -> list[VariantProperty]:
    """What the providers of variantlib would say of a machine with GPUs of one kind."""
    found = [("build_pytorch", "wrapper", "on")]
    found += [("build_pytorch", "release", name) for name in matrix.releases]
    arch = machine.platform.partition("-")[0]
    found += [
        (arch, flag, "on") for flag in machine.cpu.flags.split() if re.fullmatch(r"\w+", flag)
    ]
    for gpu in machine.gpus[:1]:
        for variant in matrix.variants:
            if variant.gpu and gpu.capability:
                built = variant.gpu.capability
                if runs_on(built, gpu.capability):
                    found.append(("nvidia", "sm_arch", f"{digits(built)}_real"))
                limit = driver_limit(driver_need(variant, gpu), machine, gpu)
                if variant.cuda and not isinstance(limit, Obstacle):
                    bound = ("nvidia", "cuda_version_lower_bound", variant.cuda.version)
                    found.append(bound)
    return [VariantProperty(*it) for it in dict.fromkeys(found)]


@pytest.mark.parametrize("name", ONE_KIND)
def test_variantlib_finds_what_choose_accepts(name: str) -> None:
    machine = picker_machines.saved()[name]
    choice = choose(MATRIX, machine)
    known = index.packages(MATRIX)
    read = VariantsJson(document(MATRIX))
    allowed = supported(MATRIX, machine)
    compatible = filter_variants(list(read.variants.values()), allowed)
    mine = {known[it.variant.id].label for it in choice.answers[0].accepted}
    assert {each.label for each in compatible} == mine


@pytest.mark.parametrize("matrix", [MATRIX, NIGHTLY], ids=["whole", "nightly"])
def test_an_index_has_all_that_decides(matrix: Matrix) -> None:
    read, found = index.parse(encoded(matrix), "variants.json")
    assert read.variants == matrix.variants
    assert read.companions == matrix.companions
    assert found.own.packages == index.packages(matrix)


def test_the_index_names_no_machine_that_builds() -> None:
    builder = '[[builder]]\nuri = "ssh://nix@thor.example.org"\nplatforms = ["aarch64-linux"]\n'
    matrix = matrix_reader.parse(f"{ONE}\n{builder}")
    assert matrix.builders
    assert "thor.example.org" not in json.dumps(document(matrix))


def broken(change: dict[str, Any], *path: str) -> bytes:
    """An index with other values below a path."""
    found = document(MATRIX)
    place = found
    for step in path:
        place = place[step]
    place.update(change)
    return json.dumps(found).encode()


OWN = "build-pytorch"
SPARK = (OWN, "packages", "cuda13_0/sm121-armv9")
HOSTILE = "\x1b]0;owned\x07$(touch /tmp/x)"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "not an index: "),
        (b"[1]", "top level: found [1]; allowed: an object"),
        (b"{}", "default-priorities: missing"),
        (b" " * (index.LARGEST + 1), "not an index: larger than 4096 KiB"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "not an index: nested too deeply"),
        (broken({"format": "build-pytorch index 2"}, OWN), "build-pytorch index 1"),
        (broken({"more": 1}, OWN), "build-pytorch.more: unknown key"),
        (broken({"l" * 17: {}}, "variants"), "at most 16 of a-z, 0-9"),
        (broken({"output": HOSTILE}, *SPARK), "the path of a store"),
        (broken({"package": "a; touch x"}, *SPARK), "without spaces"),
        (broken({"organizations": [HOSTILE]}, *SPARK), "an organization on FloxHub"),
        (broken({"about": HOSTILE}, *SPARK), "one line of text"),
        (broken({"repository": f"https://e.org/{HOSTILE}"}, OWN, "matrix"), "https:// URL"),
        (broken({"gpu": {}}, OWN, "matrix"), "X: "),
        (broken({"release": {}}, OWN, "matrix"), "at least one release"),
    ],
)
def test_a_broken_index_is_refused_with_its_place(data: bytes, says: str) -> None:
    with pytest.raises(BuildPytorchError) as caught:
        index.parse(data, "X")
    assert str(caught.value).startswith("X: ")
    assert says in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_the_picker_has_the_packages_of_the_index() -> None:
    found = re.search(
        r'(?s)<script type="application/json" id="facts">(.*?)</script>', whole_page()
    )
    assert found
    facts = json.loads(found[1])

    def value_of(number: int) -> Any:  # as the page reads it
        value = facts["pool"][number]
        if isinstance(value, dict):
            return {key: value_of(part) for key, part in value.items()}
        return list(map(value_of, value)) if isinstance(value, list) else value

    builds = [
        value_of(number)
        for number, it in enumerate(facts["pool"])
        if isinstance(it, dict) and {"id", "companions"} <= it.keys()
    ]
    packages = document(MATRIX)[OWN]["packages"]
    for package in packages.values():
        package.pop("label", None)
    assert len(builds) > 100
    for build in builds:
        assert build["package"] == packages.get(build["id"])
        names = (build["package"] or {}).get("companions", [])
        assert build["companions"] == [packages[f"{build['id']}+{name}"] for name in names]


def test_pages_writes_what_the_ledger_knows(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without Nix, a store path that exists is valid
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path / "store"))
    sample = SampleFleet(project.root)
    matrix = matrix_reader.load(project.root)
    variant = next(v for v in matrix.variants if v.id == "sm121-armv9")
    output = sample.built(variant, tmp_path / "store")
    sample.append(
        ledger.Tested(
            **sample.common(variant, LAST),
            by="compare",
            outcome="passed",
            output=output,
            reason="2 threads: 1.20",
            compared=ledger.ComparedFacts(
                against="wheel 2.10.0",
                machine="GB10",
                ratios={"2 threads": 0.8},
                verdicts={"2 threads": ledger.Verdict.FASTER},
            ),
        )
    )
    sample.append(
        ledger.Published(**sample.common(variant, LAST), organization="acme", output=output)
    )
    done = project.invoke("pages")
    assert f"written: {paths.INDEX}" in done.stderr
    _, found = index.parse((project.root / paths.INDEX).read_bytes(), paths.INDEX)
    known = found.own.packages["sm121-armv9"]
    assert (known.output, known.organizations) == (output, ("acme",))
    assert known.evidence == {"compare": "passed"}
    assert [it.verdict for it in known.comparisons] == ["faster"]
    others = [it for key, it in found.own.packages.items() if key != "sm121-armv9"]
    assert not any(it.output or it.evidence or it.organizations for it in others)


def test_pages_overwrites_no_file_that_is_no_index(project: Project) -> None:
    project.invoke("pages")
    place = project.root / paths.INDEX
    place.write_text('{"mine": 1}')
    done = project.invoke("pages")
    assert done.returncode == 2
    assert "not an index; refusing to overwrite it" in done.stderr
    assert place.read_text() == '{"mine": 1}'
    before = place.stat().st_mtime_ns
    project.invoke("pages", "--check")
    assert place.stat().st_mtime_ns == before
