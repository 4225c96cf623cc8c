"""A valid matrix that has every field of the schema, with few variants.

It is ours, each group cut to its first GPU and first ISA, with tables that ours has not. Every value
is used where it can be: a rule that never applies would hide what its texts do to a recipe.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MATRIX = Path(__file__).resolve().parents[2] / "matrix.toml"
CUT = ("gpu", "cpu")

COPIES = {
    f"{name}-13_0.nix": f"{{ cudaPackages }}: cudaPackages.{name}\n"
    for name in ("cudatoolkit", "cudnn", "nccl", "libcusparse_lt")
}
"""Files with the packages of release.copied."""

MORE = """
[[builder]]
uri = "ssh-ng://nix@thor.example.org"
platforms = ["aarch64-linux"]
key = "/etc/nix/builder_key"
features = ["big-parallel"]
host_key = "c3NoLWVkMjU1MTk="

[[rule]]
id = "ours"
when.kind = ["gpu"]
when.platform = ["x86_64-linux"]
when.gpu = ["sm120"]
when.capability = ">=12.0"
when.cpu = ["avx2"]
when.cuda = ">=13.0"
when.torch = ">=2.10"
when.torch_source = "github"
when.pin = ["early_2026"]
when.pin_has = ["ours"]
when.pin_lacks = ["theirs"]
when.not_in_default_capabilities = true
until.kind = ["gpu"]
until.platform = ["x86_64-linux"]
until.gpu = ["sm120"]
until.capability = ">=12.0"
until.cpu = ["avx2"]
until.cuda = ">=13.0"
until.torch = ">=99.0"
until.torch_source = "github"
until.pin = ["early_2026"]
until.pin_has = ["ours"]
until.pin_lacks = ["theirs"]
until.not_in_default_capabilities = true
effect.environment = { USE_OURS = "1" }
effect.cmake_flags = ["-DUSE_OURS=1"]
effect.patches = ["magma_clock_rate"]
effect.fixes = ["cupti-paths"]
effect.config = ["allowOurs"]
effect.blas = "openblas"
effect.without = ["nnpack"]
reason = "ours"
source = "https://example.org/ours"
checked = "2026-11-21"
unconfirmed = "ours"

[cpu.apple]
title = "Apple silicon"
platform = "aarch64-darwin"
level = 1
flags = []
cpuinfo = []
macros = []
cpus = ["M1 and newer"]

[release.copied]
like = "cuda13_0"
folder = "releases/copied/.flox/pkgs"
catalog = "copied"
notes = "docs/explanation/build-notes-copied.md"
purpose = "every field that the others have not"
support = "none"
blas = "mkl"
without = [{ feature = "nnpack", reason = "ours" }]
names.suffix = "-copied"
names.mps = "darwin-mps"
build.cache = "/var/cache/ours"
build.require_builder_feature = true
companion.torchvision.folder = "releases/copied/vision"
companion.torchvision.fetcher = "fetchFromGitHub"
companion.torchaudio.folder = "releases/copied/audio"
companion.torchaudio.fetcher = "fetchFromGitHub"

[release.copied.cuda.packages_from]
fetcher = "fetchTarball"
folder = "third_party/cuda"
origin = "https://example.org/cuda"

[release.copied.companion.torchcodec]
version = "0.10.0"
source = "github"
owner = "meta-pytorch"
repo = "torchcodec"
rev = "v0.10.0"
fetcher = "fetchFromGitHub"
hash = "sha256-b1sjHVFXdNFDbdtXWSM2KisSRE/8IbzJI4rvzYQ4UMg="
hash_of = "v0.10.0"
patches = "clear"
folder = "releases/copied/codec"
unconfirmed = "ours"

[release.copied.companion.triton]
version = "3.6.0"
source = "github"
owner = "triton-lang"
repo = "triton"
rev = "v3.6.0"
fetcher = "fetchFromGitHub"
hash = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ="
hash_of = "v3.6.0"
patches = "clear"
unconfirmed = "ours"

[[release.copied.group]]
title = "GPU copied"
kind = "gpu"
platform = "x86_64-linux"
gpu = ["sm86_89"]
cpu = ["avx2"]

[[release.copied.group]]
title = "CPU copied"
kind = "cpu-only"
platform = "x86_64-linux"
cpu = ["avx2"]
blas = "openblas"
without = [{ feature = "nnpack", reason = "ours" }]

[gpu.sm86_89]
capability = "8.6"
also = ["8.9"]
ptx = true
family = "Ampere and Ada"
hosts.x86_64-linux = ["RTX 3090", "RTX 4090"]
first_cuda = "11.8"
last_cuda = "13.9"
later_cuda = "14.0"
driver = "520.61"
source = "ours"
checked = "2026-11-21"

[release.mac]
folder = "releases/mac/.flox/pkgs"
torch = { version = "2.9.1", source = "nixpkgs" }
nixpkgs = { pin = "early_2026", config = ["allowUnfree", "allowOurs"] }
python.version = "3.13"
companion = { torchvision = "none", torchaudio = "none", torchcodec = "none" }

[release.mac.names]
package = "pytorch"
pname = "pytorch{torch}"
gpu = "python{python}"
cpu = "python{python}-cpu"
mps = "python{python}-darwin-mps"

[release.mac.build]
max_jobs = 8
system_features = ["big-parallel"]
job_memory = 5
reserved_memory = 2
disk = 60
core_hours = 5.4

[[release.mac.group]]
title = "Mac"
kind = "mps"
platform = "aarch64-darwin"
cpu = ["apple"]
"""


def document() -> dict[str, Any]:
    """Return the matrix as tables; inherited values are not written out."""
    found = tomllib.loads(MATRIX.read_text() + MORE)
    first = found["release"]["cuda13_0"]
    for release in found["release"].values():
        for group in release["group"]:
            for axis in CUT:
                if axis in group:
                    group[axis] = group[axis][:1]
    used = {
        axis: {
            key for r in found["release"].values() for g in r["group"] for key in g.get(axis, ())
        }
        for axis in CUT
    }
    for axis in CUT:
        found[axis] = {key: table for key, table in found[axis].items() if key in used[axis]}
        for conditions in _conditions(found, axis):
            conditions[axis] = [key for key in conditions[axis] if key in used[axis]]
    first["nixpkgs"]["config"].append("allowOurs")
    found["pin"]["early_2026"]["has"] = ["ours"]
    found["pin"]["early_2026"]["facts"]["magma_patches"] = ["ours.patch"]
    found["pin"]["early_2026"]["facts"]["cuda_sets"]["cudaPackages_13"]["nccl"] = "2.28"
    kept = {"file": "pytorch-python313-cpu-avx2.nix", "action": "keep", "reason": "ours"}
    first["cleanup"] = [e for e in first["cleanup"] if e["action"] == "delete"] + [kept]
    for pin in found["pin"].values():
        pin["sha256"], pin["sha256_of"] = first["torch"]["hash"], pin["rev"]
    return {"publisher": "ours", **found}


def _conditions(found: dict[str, Any], axis: str) -> Iterator[dict[str, Any]]:
    for rule in found["rule"]:
        for field in ("when", "until"):
            if axis in rule.get(field, ()):
                yield rule[field]
