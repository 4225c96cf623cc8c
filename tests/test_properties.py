"""For any valid matrix and any single mistake in it, not only for the ones we thought of."""

from __future__ import annotations

import base64
import re
import string
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import tomlkit
from conftest import ONE, write_recipes
from hypothesis import HealthCheck, assume, given, settings

from build_pytorch.base import digest
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.verify import check, verification

pytestmark = pytest.mark.slow

# A product called USE_CUDA=OFF would be found, and rightly: text checks read every word.
OUR_WORDS = re.compile(
    r"=|_|filterMagma|postFixup|Runpath|result|HOME|~/|/(home|Users|root|mnt|opt|usr)"
    r"|SM\d|uildInputs|PyTorch|python3|fetch|cuda|rev|hash"
)
TEXTS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S"), include_characters=" "),
    min_size=1,
    max_size=20,
).filter(lambda text: not OUR_WORDS.search(text))
WORDS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
SRI = (
    st.binary(min_size=32, max_size=32)
    .filter(any)
    .map(lambda data: f"sha256-{base64.b64encode(data).decode()}")
)
REVS = st.text("0123456789abcdef", min_size=40, max_size=40)
PLATFORMS = ("x86_64-linux", "aarch64-linux")
FLAGS = st.lists(
    st.sampled_from(["-mavx2", "-mfma", "-march=armv9-a+sve2"]), min_size=1, max_size=3
)


@st.composite
def matrices(draw: st.DrawFn) -> dict[str, Any]:
    """A valid matrix with one release."""
    capabilities = draw(
        st.lists(
            st.tuples(st.integers(1, 99), st.integers(0, 9)), min_size=1, max_size=3, unique=True
        )
    )
    assume(len({f"{major}{minor}" for major, minor in capabilities}) == len(capabilities))
    known = known_hardware.load()
    assume(not any(f"sm{major}{minor}" in known.gpu for major, minor in capabilities))
    gpus = {
        f"sm{major}{minor}": {
            "capability": f"{major}.{minor}",
            "family": draw(TEXTS),
            "hosts": {
                platform: draw(st.lists(TEXTS, min_size=1, max_size=2))
                for platform in draw(st.lists(st.sampled_from(PLATFORMS), min_size=1, unique=True))
            },
            "first_cuda": "11.0",
        }
        for major, minor in capabilities
    }
    cpus: dict[str, dict[str, Any]] = {
        name: {
            "title": draw(TEXTS),
            "platform": draw(st.sampled_from(PLATFORMS)),
            "flags": draw(FLAGS),
            "cpuinfo": ["avx2", "fma", "sve", "sve2", *draw(st.lists(WORDS, max_size=3))],
            "macros": ["__AVX2__"],
            "cpus": draw(st.lists(TEXTS, min_size=1, max_size=2)),
        }
        for name in draw(st.lists(WORDS, min_size=1, max_size=3, unique=True))
    }
    cpus = {name: {**cpu, "level": number} for number, (name, cpu) in enumerate(cpus.items(), 91)}
    groups = []
    for platform in PLATFORMS:
        isas = [name for name, cpu in cpus.items() if cpu["platform"] == platform]
        if isas:
            common = {"title": draw(TEXTS), "cpu": isas}
            groups.append({**common, "gpu": list(gpus)})
            groups.append(common)
    document: dict[str, Any] = tomllib.loads(ONE)
    (pin,), (release,) = document["pin"].values(), document["release"].values()
    del release["companion"], release["cleanup"]
    release |= {"notes": "docs/notes.md", "group": groups}
    release["torch"]["hash"] = draw(SRI)
    release["torch"]["rev"] = draw(st.one_of(st.just("v2.10.0"), REVS))
    release["torch"]["hash_of"] = release["torch"]["rev"]
    release["cuda"]["package_set"] = draw(st.sampled_from(["cudaPackages_13", "cudaPackages_13_0"]))
    release["build"] |= {
        "max_jobs": draw(st.integers(1, 1024)),
        "job_memory": draw(st.floats(1, 64)),
    }
    if draw(st.booleans()):
        del release["build"]["cpu_only"]
    if draw(st.booleans()):
        release["torch"] = {"version": "2.10.0", "source": "nixpkgs"}
    patch = {
        "package": "magma",
        "reason": draw(TEXTS),
        "name": "fix.patch",
        "url": "https://example.org/fix.patch",
        "hash": draw(SRI.filter(lambda drawn: drawn != release["torch"].get("hash"))),
        "hash_of": "https://example.org/fix.patch",
    }
    pin |= {"rev": draw(REVS), "torch": "2.10.0", "python": draw(st.sampled_from(["3.12", "3.13"]))}
    pin |= {"date": draw(TEXTS), "source": draw(TEXTS), "facts": {"of": pin["rev"]}}
    effects: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"kind": ["gpu"]}, {"patches": ["fix"]}),
        ({"kind": ["gpu"], "cuda": ">=13.0"}, {"fixes": ["cccl-shim"]}),
        ({"kind": ["gpu"], "torch_source": "github"}, {"fixes": ["find-cuda-toolkit-stub"]}),
        ({"capability": "<7.5"}, {"environment": {"USE_CUDNN": "0"}}),
        ({"cpu": list(cpus)[:1]}, {"cmake_flags": ["-DUSE_FBGEMM=OFF"]}),
    ]
    texts = {"reason": draw(TEXTS), "source": "https://example.org/x", "checked": "2026-11-21"}
    rules = [
        {"id": f"r{number}", "when": when, "effect": effect, **texts}
        for number, (when, effect) in enumerate(effects)
        if draw(st.booleans())
    ]
    kept = {name: document[name] for name in ("pin", "release")}
    return {**kept, "gpu": gpus, "cpu": cpus, "patch": {"fix": patch}, "rule": rules}


relaxed = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@relaxed
@given(document=matrices())
def test_any_valid_matrix_renders_to_recipes_that_pass_verification(
    document: dict[str, Any],
) -> None:
    matrix = matrix_reader.parse(tomlkit.dumps(document))
    with tempfile.TemporaryDirectory() as folder:
        assert all(map(digest.is_intact, write_recipes(Path(folder), matrix).values()))
        # Without compilers, which do not know made-up architectures.
        result = verification.verify(
            matrix,
            Path(folder),
            only=[category for category in check.load().category if category != "compiler"],
        )
    errors = [
        (finding.check, finding.found, finding.expected)
        for finding in result.findings
        if finding.severity == "error" and "doc" not in finding.check
    ]
    assert errors == []
