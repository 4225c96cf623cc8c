"""What logs say of builds that go wrong, as data: the mark, what it means, what to do.

A rule that `stops` ends a build as soon as its line appears: such a build can only end badly,
hours later. The others name a failure after it has happened.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.matrix.model import Variant


class Rule(Struct, frozen=True, kw_only=True):
    """One way in which builds go wrong.

    `pattern` is searched in each line of the log. `differs` looks closer where the line alone does
    not tell: it gets what the pattern captured.
    """

    id: str
    pattern: str
    meaning: str
    fix: str
    kinds: tuple[str, ...] = ("gpu", "cpu-only")
    stops: bool = False
    differs: Callable[[str, Variant], bool] | None = None
    retry: Literal["", "fewer-cores", "later"] = ""
    shared: bool = False
    """Whether it is in all recipes of a kind alike, so that the next build would fail as well."""

    def finds(self, line: str, variant: Variant) -> bool:
        """Whether a line of a variant's log shows it."""
        if variant.group.kind not in self.kinds:
            return False
        match = _compiled(self.pattern).search(line)
        return match is not None and (self.differs is None or self.differs(match[1], variant))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _capabilities_differ(text: str, variant: Variant) -> bool:
    """TORCH_CUDA_ARCH_LIST: dotted capabilities between blanks or semicolons."""
    found = set(re.split(r"[\s;,]+", text.strip(" \"';")))
    return variant.gpu is not None and found != {variant.gpu.capability}


def _codes(variant: Variant) -> set[str]:
    """How compilers write the variant's capability: 120 for 12.0."""
    return {variant.gpu.capability.replace(".", "")} if variant.gpu else set()


def _architectures_differ(text: str, variant: Variant) -> bool:
    """CMAKE_CUDA_ARCHITECTURES: 120, 120-real; OFF where PyTorch gives the flags."""
    found = {
        part.removesuffix("-real").rstrip("af")
        for part in re.split(r"[\s;,]+", text.strip(" \"';"))
    }
    return found != _codes(variant) and text.upper() not in {"OFF", "FALSE"}


def _flags_differ(text: str, variant: Variant) -> bool:
    """The flags that PyTorch gives nvcc: code=sm_120 for each architecture."""
    found = set(re.findall(r"code=sm_(\d+)[a-z]?", text))
    return bool(found) and found != _codes(variant)


def _cuda_differs(text: str, variant: Variant) -> bool:
    cuda = variant.release.cuda
    return cuda is not None and not f"{text}.".startswith(f"{cuda.version}.")


def _torch_differs(text: str, variant: Variant) -> bool:
    """PyTorch's own version; a release candidate and a local suffix are the same version."""
    return re.split(r"[+a-z]", text)[0] != re.split(r"[+a-z]", variant.release.torch.version)[0]


_ARCHITECTURE_FIX: Final = (
    "gpuTargets in the recipe's override decides; `nox -s verify` tells where it goes wrong"
)
# Where a variable is set: in an environment, by CMake's message, on its command line. Advice that
# names the variable in the middle of a sentence sets nothing.
_SET: Final = r"(?:^(?:declare -x |export |-- +)?|(?:^|\s)-D)"
_CAPABILITY: Final = r"\d+\.\d[a-f]?(?:\+PTX)?"
_CAPABILITIES: Final = rf"{_CAPABILITY}(?:[;, ]+{_CAPABILITY})*"
_OFF: Final = r"(?:OFF|0|FALSE|NO|False)\b"

# The summary is PyTorch's cmake/Summary.cmake: two dashes, two blanks, the name in 22 columns.
WATCHED: Final = (
    Rule(
        id="cuda-not-found",
        pattern=r"CUDA cannot be found",
        kinds=("gpu",),
        stops=True,
        shared=True,
        meaning="CMake finds no CUDA, so this becomes a CPU-only PyTorch",
        fix="the recipe needs .override { cudaSupport = true; } before overrideAttrs",
    ),
    Rule(
        id="not-compiling-cuda",
        pattern=r"Not compiling with CUDA(?:\.|\s*$)",
        kinds=("gpu",),
        stops=True,
        shared=True,
        meaning="PyTorch goes on without CUDA",
        fix="the recipe needs .override { cudaSupport = true; } before overrideAttrs",
    ),
    Rule(
        id="cuda-off",
        pattern=rf"^\s*(?:--\s+)?USE_CUDA\s+:\s*{_OFF}",
        kinds=("gpu",),
        stops=True,
        shared=True,
        meaning="PyTorch's own summary says that this is a CPU-only build",
        fix="the recipe needs .override { cudaSupport = true; } before overrideAttrs",
    ),
    Rule(
        id="magma-off",
        pattern=rf"^\s*(?:--\s+)?USE_MAGMA\s+:\s*{_OFF}",
        kinds=("gpu",),
        stops=True,
        shared=True,
        meaning="PyTorch is built without MAGMA: torch.linalg loses its fast paths",
        fix="find out why CMake does not find MAGMA; never switch it off to get on",
    ),
    Rule(
        id="wrong-capability",
        pattern=rf"{_SET}TORCH_CUDA_ARCH_LIST\s*[:=]\s*[\"']?({_CAPABILITIES})(?![\w.])",
        kinds=("gpu",),
        stops=True,
        differs=_capabilities_differ,
        meaning="PyTorch is compiled for other GPUs than the variant's",
        fix=_ARCHITECTURE_FIX,
    ),
    Rule(
        id="wrong-architecture",
        pattern=(
            rf"{_SET}CMAKE_CUDA_ARCHITECTURES(?:\s*=\s*|:\s+|(?<=-DCMAKE_CUDA_ARCHITECTURES):[A-Z]+=)"
            r"[\"']?([A-Za-z0-9][\w;,-]*)"
        ),
        kinds=("gpu",),
        stops=True,
        differs=_architectures_differ,
        meaning="CMake compiles for other GPUs than the variant's",
        fix=_ARCHITECTURE_FIX,
    ),
    Rule(
        id="wrong-nvcc-flags",
        pattern=r"Added CUDA NVCC flags for: (.*)",
        kinds=("gpu",),
        stops=True,
        differs=_flags_differ,
        meaning="nvcc gets flags for other GPUs than the variant's",
        fix=_ARCHITECTURE_FIX,
    ),
    Rule(
        id="unknown-architecture",
        pattern=(
            r"Unknown CUDA Architecture Name|^\s*Unknown architecture"
            r"|^\s*(?:\w+ )?(?:error|fatal)\s*: .*(?:[Uu]nknown|[Uu]nsupported gpu) architecture"
        ),
        kinds=("gpu",),
        stops=True,
        meaning="PyTorch or nvcc does not know the architecture",
        fix="gpuTargets takes the dotted form (12.0, not sm_120), and the CUDA must have it",
    ),
    Rule(
        id="wrong-cuda",
        pattern=r"^-- {5}CUDA version {2,}: ([0-9]+\.[0-9]+)",
        kinds=("gpu",),
        stops=True,
        shared=True,
        differs=_cuda_differs,
        meaning="PyTorch is compiled with another CUDA than the release's",
        fix="the first overlay has to set cudaPackages for every package",
    ),
    Rule(
        id="wrong-version",
        pattern=r"Building wheel torch-([0-9][0-9A-Za-z.+]*?)(?:-|\s|$)",
        stops=True,
        shared=True,
        differs=_torch_differs,
        meaning="the source is that of another PyTorch",
        fix="Nix reuses a source by its hash: `nox -s prefetch` takes the hash of the new one",
    ),
    Rule(
        id="cuda-on",
        pattern=r"^\s*(?:--\s+)?USE_CUDA\s+:\s*(?:ON|1|TRUE|YES|True)\b",
        kinds=("cpu-only",),
        stops=True,
        shared=True,
        meaning="a CPU-only variant is built with CUDA",
        fix="the recipe needs .override { cudaSupport = false; } and USE_CUDA=0",
    ),
)

HASH_MISMATCH: Final = "hash-mismatch"

# The first that the log shows names the failure, so what is certain stands before what is likely.
KNOWN: Final = (
    Rule(
        id=HASH_MISMATCH,
        pattern=(
            r"hash mismatch in (?:fixed-output|file downloaded)|has wrong hash"
            r"|has \w+ hash '\S+' when '|with sha256 hash \S+ instead"
        ),
        shared=True,
        meaning="a source is not what its hash says",
        fix="`invoke prefetch --from-log LOG` takes the hash; --fix-hashes does it and goes on",
    ),
    Rule(
        id="disk-full",
        pattern=r": No space left on device|database or disk is full|: Disk quota exceeded",
        shared=True,
        meaning="the disk is full",
        fix="free some: `nix-collect-garbage`, or another TMPDIR for the build",
    ),
    Rule(
        id="out-of-memory",
        pattern=(
            r"^(?:.*: )?Killed\s*$|\[Killed\]|\(Killed\)|(?:cicc|ptxas|cudafe\+\+)\W? died"
            r"|[Kk]illed signal terminated|virtual memory exhausted|: [Cc]annot allocate memory"
            r"|: out of memory|what\(\): +std::bad_alloc|(?:exit code|Error) 137\b"
            r"|failed due to signal 9"
        ),
        retry="fewer-cores",
        meaning="the compilers took more memory than there is",
        fix="build with fewer cores (--cores) or fewer variants at once (--jobs)",
    ),
    Rule(
        id="missing-feature",
        pattern=r"with features \{|required system or feature not available|required to build '/",
        meaning="no machine here has the platform or the feature that the recipe asks for",
        fix="add big-parallel to system-features in nix.conf, or a builder with --builders",
    ),
    Rule(
        id="builder-unreachable",
        pattern=r"^(?:error: )?cannot build on '|^error: .*failed to start SSH connection",
        retry="later",
        meaning="a remote builder cannot be reached",
        fix="try `nix store ping --store URI`; take the builder out until it answers",
    ),
    Rule(
        id="unfree",
        pattern=r"unfree licen[cs]e",
        shared=True,
        meaning="nixpkgs refuses unfree software, and CUDA is",
        fix="the recipe's own nixpkgs config needs allowUnfree = true",
    ),
    Rule(
        id="marked-broken",
        pattern=r"is marked as broken",
        shared=True,
        meaning="nixpkgs marks torch broken on this CUDA",
        fix="the recipe's own nixpkgs config needs allowBroken = true",
    ),
    Rule(
        id="magma-clock-rate",
        pattern=r"no member named \S?clockRate",
        kinds=("gpu",),
        shared=True,
        meaning="MAGMA reads cudaDeviceProp.clockRate, which CUDA dropped with 13",
        fix="the MAGMA patch does not reach it (build notes, fix 1)",
    ),
    Rule(
        id="patch-applied-twice",
        pattern=r"Reversed \(or previously applied\) patch detected",
        shared=True,
        meaning="a patch is in the source already",
        fix="this pin has it: take [release.*.magma_patch] out of matrix.toml",
    ),
    Rule(
        id="cccl-headers",
        pattern=r"(?:cccl/)?cuda/std/\w+(?:\.h)?: No such file",
        kinds=("gpu",),
        shared=True,
        meaning="the CCCL headers are not below include/cccl, where PyTorch looks",
        fix='`fixes` of the release needs "cccl-shim" (build notes, fix 2)',
    ),
    Rule(
        id="torch-feature-version",
        pattern=r"TORCH_FEATURE_VERSION >= TORCH_VERSION",
        shared=True,
        meaning="headers are compiled for another version than the source's",
        fix="preConfigure has to export PYTORCH_BUILD_VERSION (build notes, fix 3)",
    ),
    Rule(
        id="find-cuda-toolkit",
        pattern=r"cannot find.*FindCUDAToolkit\.cmake",
        kinds=("gpu",),
        shared=True,
        meaning="nixpkgs removed FindCUDAToolkit.cmake, and PyTorch installs it",
        fix='`fixes` of the release needs "find-cuda-toolkit-stub" (build notes, fix 4)',
    ),
    Rule(
        id="not-there",
        pattern=r"HTTP error 4(?:03|04|10)\b",
        meaning="what should be downloaded is not where it should be",
        fix="see whether the address that the line names still exists",
    ),
    Rule(
        id="network",
        pattern=(
            r"unable to download|Could not resolve host|Couldn't resolve host"
            r"|Temporary failure in name resolution|Connection (?:timed out|refused|reset by peer)"
            r"|Operation too slow|Failed to connect to|SSL connect error|unexpected end-of-file"
            r"|RPC failed; curl"
        ),
        retry="later",
        meaning="something could not be downloaded",
        fix="see whether this machine reaches the host that the line names",
    ),
)

RULES: Final = (*WATCHED, *KNOWN)

_HINTS: Final = re.compile("|".join(f"(?:{rule.pattern})" for rule in RULES))


def first_found(line: str, variant: Variant) -> Rule | None:
    """The first rule whose mark a line of a variant's log bears, or None."""
    if not _HINTS.search(line):  # one search instead of one for each rule
        return None
    return next((rule for rule in RULES if rule.finds(line, variant)), None)
