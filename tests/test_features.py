"""What builds lack of the official wheel: in their files, and in what torch.__config__ prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from built_files import compile_library, looked, variant_of
from conftest import ONE
from msgspec.structs import replace
from smoke_reports import raw, report, right

from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.available import AvailableBuild, available_builds
from build_pytorch.matrix.build_features import (
    build_features,
    lacking,
    seen,
    wheel_for,
)
from build_pytorch.matrix.model import Variant
from build_pytorch.smoke.judge import judge

# feature | how it shows in files | in torch.__config__, "" where it does not
ROWS = """
blas         | mkl_get_max_threads          | BLAS_INFO=mkl,
blas_threads | .gomp_critical_user_mkl_blas | mkl_get_max_threads() : 8
lapack       | - LAPACK is enabled (usually | - LAPACK is enabled (usually
onednn       | Intel(R) MKL-DNN v           | Intel(R) MKL-DNN v3.7.1 (Git Hash 8d26)
acl          | libarm_compute.so            |
openmp       | libgomp.so.1                 | ATen parallel backend: OpenMP
fbgemm       | -DUSE_FBGEMM -               | -DUSE_FBGEMM -
xnnpack      | -DUSE_XNNPACK -              | -DUSE_XNNPACK -
nnpack       | - NNPACK is enabled          | - NNPACK is enabled
kineto       | -DUSE_KINETO -               | -DUSE_KINETO -
cupti        | cuptiActivityEnable          |
cudnn        | libcudnn.so.9                | USE_CUDNN=ON
cusparselt   | libcusparseLt.so.0           | USE_CUSPARSELT=1
cudss        | libcudss.so.0                | USE_CUDSS=ON
nccl         | ncclAllReduce                | USE_NCCL=1
gloo         | _ZN4gloo9allreduceE          | USE_GLOO=ON
magma        | magma_version                | - Magma 2.6.1
"""
SHOWN = {
    name: (files, config)
    for name, files, config in (map(str.strip, row.split("|")) for row in ROWS.strip().splitlines())
}
OWN_THREADS = "OpenBLAS 0.3.29 DYNAMIC_ARCH NO_AFFINITY "
LESSER = [
    ("blas", 0, "libopenblas.so.0"),
    ("blas", 1, "BLAS_INFO=open, "),
    ("blas_threads", 0, OWN_THREADS),
    ("blas_threads", 1, "mkl_get_max_threads() : 1\n\tMKL_NUM_THREADS : [not set]"),
]
"""What shows in place of the kind that the wheel has."""
OTHER = "-DUSE_FBGEMM_GENAI NNPACK is disabled USE_NCCL=OFF USE_GLOO=0 "
EVIDENCE: tuple[Any, Any] = ("files", "config")
GPU: Variant = variant_of("sm120-avx512")
WHEEL = replace(
    next(w for w in available_builds() if w.features and w.version == "2.10.0" and w.cuda),
    features={**dict.fromkeys(SHOWN, ""), "blas": "mkl", "blas_threads": "openmp"},
)


def lacked(
    position: int, *texts: str, wheel: AvailableBuild = WHEEL, variant: Variant = GPU
) -> list[tuple[str, str]]:
    found = seen([text.encode() for text in texts], EVIDENCE[position])
    has_cuda = variant.gpu is not None
    return list(lacking(wheel, EVIDENCE[position], found, has_cuda=has_cuda))


def without(name: str, position: int) -> list[str]:
    return [OTHER, *(shown[position] for key, shown in SHOWN.items() if key != name)]


@pytest.mark.parametrize("name", SHOWN)
def test_each_feature_that_is_dropped_is_found(name: str) -> None:
    assert SHOWN.keys() == build_features().keys()
    feature = build_features()[name]
    for position in (0, 1):
        assert lacked(position, *without("", position)) == []
        found = lacked(position, *without(name, position))
        is_seen = SHOWN[name][position] and feature.if_unseen != "unknown"
        assert [each for each, _ in found] == [name] * bool(is_seen)
        for _, text in found:
            assert text.startswith(f"{feature.title}: missing; ")
            assert feature.source in text


@pytest.mark.parametrize(("name", "position", "text"), LESSER)
def test_a_lesser_kind_than_that_of_the_wheel_is_found(name: str, position: int, text: str) -> None:
    ((found, problem),) = lacked(position, *without(name, position), text)
    assert found == name
    assert re.search(rf": (?!missing)[^;]*, not {WHEEL.features[name]}; ", problem)


def test_limits_a_better_kind_and_what_belongs_to_cuda_are_no_finding() -> None:
    limited = "mkl_get_max_threads() : 1\n\tMKL_NUM_THREADS : 1\n"
    assert lacked(1, *without("blas_threads", 1), limited) == []
    wheel = replace(WHEEL, features={"blas": "openblas"})
    assert lacked(0, "libnvpl_blas_core.so.0", wheel=wheel) == []
    cpu_only = {name for name, feature in build_features().items() if not feature.cuda}
    found = lacked(0, "", variant=variant_of("cpu-avx2"))
    assert {name for name, _ in found} == cpu_only - {"blas_threads"}


@pytest.mark.parametrize(
    ("id_", "versions", "found"),
    [
        ("sm120-avx512", {"cuda": "12.8"}, "12.8"),
        ("sm120-avx512", {}, "12.8"),
        ("cpu-avx2", {}, "12.8"),
        ("sm110-armv9", {}, ""),
        ("sm120-avx512", {"torch": "2.12.0"}, None),  # of the row of 2.12.1, which was read
        ("cpu-avx2", {"torch": "2.0.1"}, None),
    ],
)
def test_a_variant_is_compared_with_the_wheel_of_its_version_cuda_and_platform(
    id_: str, versions: dict[str, str], found: str | None
) -> None:
    variant = variant_of(id_, **versions)
    wheel = wheel_for(variant)
    assert (wheel and wheel.cuda) == found
    if wheel:
        assert (wheel.version, wheel.platform) == ("2.10.0", variant.platform)


@pytest.mark.parametrize(
    ("report_name", "id_", "version"),
    [("h200", "sm90-avx512", "2.11.0"), ("cpu-wheel", "cpu-avx512", "2.13.0")],
)
def test_a_wheel_lacks_nothing_of_itself(report_name: str, id_: str, version: str) -> None:
    text = str(raw(report_name)["torch"]["config"])
    variant = variant_of(id_, torch=version)
    wheel = wheel_for(variant)
    assert wheel
    assert lacked(1, text, wheel=wheel, variant=variant) == []
    if report_name == "h200":
        found = seen([text.encode()], "config")
        assert (found["onednn"], found["magma"], found["blas"]) == ("3.10.2", "2.6.1", "mkl")


# --- files ---


def library(folder: Path, **changed: str | None) -> None:
    """A libtorch_cpu.so that shows features: names as functions, other texts as strings."""
    samples = {name: files for name, (files, _) in SHOWN.items()} | changed
    text = '__attribute__((used)) const char {}[] = "{}";'
    lines = [
        f"void {sample}(void) {{}}" if re.fullmatch(r"\w+", sample) else text.format(name, sample)
        for name, sample in samples.items()
        if sample
    ]
    compile_library(folder, source="\n".join(lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "torch/lib"


def test_features_are_seen_in_names_and_texts_of_libraries(folder: Path) -> None:
    """The BLAS beside the libraries says whose threads it has."""
    library(folder)
    part = looked("features", "cpu-avx2", folder)
    assert part["state"] == "passed"
    assert part["figures"]["features"].keys() == SHOWN.keys()
    library(folder, fbgemm=None, blas_threads=None)
    text = f'__attribute__((used)) const char config[] = "{OWN_THREADS}";'
    blas = compile_library(folder, source=text, name="libopenblas.so.0")
    part = looked("features", "cpu-avx2", folder)
    assert part["state"] == "warning"
    found = {finding["found"].partition(";")[0] for finding in part["findings"]}
    assert found == {"FBGEMM: missing", "threads of the BLAS: own, not openmp"}
    (finding, _) = part["findings"]
    assert (finding["severity"], finding["expected"]) == (
        "warning",
        "as in the official wheel of 2.10.0",
    )
    (folder.parents[1] / "torch.libs").mkdir()
    blas.rename(folder.parents[1] / "torch.libs/libopenblasp-r0.so")
    assert looked("features", "cpu-avx2", folder)["figures"]["features"]["blas_threads"] == "own"


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        ("2.10.0", "no feature shows in their names and texts"),
        ("2.0.1", "for x86_64-linux; run `python scripts/wheel_facts.py 2.0.1`"),
    ],
)
def test_what_cannot_be_compared_is_one_warning(folder: Path, torch: str, says: str) -> None:
    compile_library(folder)
    (finding,) = looked("features", variant_of("cpu-avx2", torch=torch), folder)["findings"]
    assert finding["severity"] == "warning"
    assert says in finding["found"]


def test_another_blas_than_the_matrix_asks_for_fails(folder: Path) -> None:
    """A build with OpenBLAS passed as the variant with MKL, with the warning of any OpenBLAS."""
    text = ONE.replace('cpu = ["avx2"', 'blas = "mkl"\ncpu = ["avx2"', 1)
    variant = next(v for v in matrix_reader.parse(text).variants if v.group.blas == "mkl")
    for blas, errors in (("libopenblas.so.0", ["BLAS: openblas"]), ("libmkl_rt", [])):
        library(folder, blas=blas)
        part = looked("features", variant, folder)
        assert [f["found"] for f in part["findings"] if f["severity"] == "error"] == errors
    document = right(variant)
    for blas, is_wrong in (("open", True), ("generic", True), ("mkl", False)):
        document["torch"]["config"] = f"  - Build settings: BLAS_INFO={blas}, "
        reasons = judge(report(document), variant).reasons
        assert any("the BLAS" in reason for reason in reasons) == is_wrong
    document["torch"]["config"] = "cut off"
    assert judge(report(document), variant).outcome == "passed"
