"""What is known of GPUs, CPUs, CUDA, nixpkgs and rules without a matrix: the files in known/.

GPU architectures, CPU ISAs, rules and patches are defaults of every matrix.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from build_pytorch.base import files
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.source_tables import Patch, Pin
from build_pytorch.matrix.tables import CpuIsa, GpuArchitecture, Rule

_FILES: Final = ("gpu", "cpu", "processor", "cuda", "pin", "rule", "patch", "source", "other")
OURS: Final = frozenset({"names", "arm_only", "products", "differs"})
"""Keys of GPU architectures and ISAs that matrix.toml does not have."""
_SHOWN: Final = {
    "gpu": ("capability", "first_cuda", "last_cuda", "driver", "family", "hosts"),
    "cpu": ("platform", "flags", "cpuinfo"),
    "pin": ("rev", "torch", "python"),
    "rule": ("reason",),
    "patch": ("url",),
}
OF_CUDA: Final = ("driver", "source", "checked")
_VENDOR: Final = re.compile(r"\b(nvidia|geforce|tesla|grid)\b|\(r\)|\(tm\)", re.IGNORECASE)
_SUFFIX: Final = re.compile(r"[ -].*")
"""What follows the model in the name of a GPU: memory, form factor, profile, "Laptop GPU"."""
_FILLER: Final = re.compile("nvidia|geforce|laptop|mobile|maxq|gpu")
"""What does not count in a short name of a GPU, as case, spaces and punctuation do not."""
_BARE_NUMBER: Final = re.compile(r"\d{3,4}[a-z]*|a\d{4}")
"""A short name that may be the end of a product's name, as `4090` is."""
_CPU_VENDOR: Final = re.compile(
    r"\b(intel|amd|arm|core|cpu|processor|\d+th gen)\b|\(r\)|\(tm\)", re.IGNORECASE
)
CUDA_NUMBER: Final = re.compile(r"[1-9]\d?\.\d{1,2}")
"""A version of CUDA, which a person may take for that of the driver; drivers begin above 100."""
NO_GPU: Final = re.compile("none|no|no gpu|without|cpu|cpu-only|igpu|integrated|-")
"""What a person may type for a machine without an NVIDIA GPU, in lower case."""
CAPABILITY: Final = re.compile(
    r"(?:compute |capability |sm_?)?([1-9][0-9]?)\.([0-9])|sm_?([1-9][0-9]?)([0-9])"
)
"""A compute capability as a person may type it, in lower case: 8.9, sm_89, sm89."""
_CPU_FORMS: Final = (
    (r"\b(i[3579]) (?=[0-9])", "$1-"),
    ("^([0-9]{4}(?:x|x3d|xt))$", "ryzen $1"),
    ("^([0-9]{4}k[fs]?|[0-9]{5}[a-z]*)$", "i7-$1"),
    (r"^.*\b([0-9]{1,2})th gen\b.*$", "i7-$1700"),
)
"""Short names of CPUs as regular expressions for lower case, each with its whole name."""
_MOST_LIKE: Final = 4  #: names that are suggested for an unknown one


class KnownGpu(GpuArchitecture, frozen=True, kw_only=True):
    """A GPU architecture with the names of its products."""

    names: tuple[str, ...] = ()  #: regular expressions for product names in lower case
    arm_only: dict[str, str] = msgspec.field(default_factory=dict)
    """Those for products that exist in ARM machines only, with the processor beside each, or ""."""
    offered: tuple[str, ...] = msgspec.field(default=(), name="products")
    """Names of products, for short names and suggestions."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """All regular expressions for its products."""
        return (*self.names, *self.arm_only)


class KnownIsa(CpuIsa, frozen=True, kw_only=True):
    """A CPU ISA with its source."""

    differs: ft.NoText = ""  #: in what it differs from a lower ISA, where that is little


class KnownProcessor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CPUs of a generation, with the highest ISA that they have."""

    title: ft.Text
    platform: ft.Platform
    isa: ft.Key | None = None
    flags: str = ""  #: some of their flags, where they have no ISA
    archspec: str = ""  #: its name in archspec, with which a test compares the ISA
    names: tuple[str, ...]  #: regular expressions for their names in lower case
    source: ft.Origin
    checked: ft.Date


class KnownCuda(msgspec.Struct, frozen=True, kw_only=True):
    """A version of CUDA: the oldest Linux driver that runs it, and the one that came with it."""

    driver: ft.DriverVersion
    bundled: ft.DriverVersion | None = None
    source: ft.Origin
    checked: ft.Date


class KnownSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source tree whose hash is known."""

    repository: str
    rev: ft.Rev
    hash: ft.NoSri
    source: ft.Origin
    checked: ft.Date


class OtherVendor(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor of GPUs that no recipe uses."""

    names: tuple[str, ...]
    says: ft.Text


class KnownHardware(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The content of the files in known/."""

    gpu: dict[ft.Key, KnownGpu]
    cpu: dict[ft.Key, KnownIsa]
    processor: dict[ft.Key, KnownProcessor]
    cuda: dict[ft.CudaVersion, KnownCuda]
    pin: dict[ft.Key, Pin]
    rule: tuple[Rule, ...]
    patch: dict[ft.Key, Patch]
    source: tuple[KnownSource, ...]
    other: dict[str, OtherVendor]
    raw: dict[str, Any] = {}  #: the tables as they are written

    def cuda_like(self, version: str) -> KnownCuda | None:
        """Return the facts of a CUDA, or of another one of its major version, or None."""
        major = version.partition(".")[0]
        same = (it for key, it in self.cuda.items() if key.partition(".")[0] == major)
        return self.cuda.get(version) or next(same, None)

    def first_driver(self, capability: str | None) -> str:
        """Return the oldest driver that knows GPUs of a capability; empty: that of their CUDA."""
        gpu = of_capability(capability)
        return (gpu and gpu.driver) or ""

    def gpu_named(self, name: str) -> tuple[str, KnownGpu] | None:
        """Return the architecture of a product by its name, such as `NVIDIA A100-SXM4-40GB`."""
        patterns = {key: gpu.patterns for key, gpu in self.gpu.items()}
        key = _best_match(patterns, _plain(_VENDOR, name))
        return (key, self.gpu[key]) if key else None

    def gpu_typed(self, name: str) -> tuple[str, KnownGpu] | None:
        """Return the GPU that a person means, such as `rtx4090`, `4090` or `RTX 4090 Laptop`.

        The first item is its name, with that of the product where it is short. A number that ends
        the names of products of several architectures means none of them.
        """
        if found := self.gpu_named(name):
            return name, found[1]
        wanted = _bare(name)
        products = [(_bare(each), each, gpu) for gpu in self.gpu.values() for each in gpu.offered]
        for text, product, gpu in products:
            if text == wanted:
                return product, gpu
        for gpu in self.gpu.values():
            if any(re.fullmatch(pattern.replace(" ", ""), wanted) for pattern in gpu.patterns):
                return name, gpu
        if not _BARE_NUMBER.fullmatch(wanted):
            return None
        ends = [(product, gpu) for text, product, gpu in products if _ends(text, wanted)]
        return ends[0] if len({gpu.capability for _, gpu in ends}) == 1 else None

    def gpu_meant(self, name: str) -> tuple[str, str, KnownGpu | None] | None:
        """Return name, capability and facts of the GPU that a person means, also by a capability.

        The facts are None for a capability that is not known; all is None for another name.
        """
        if found := CAPABILITY.fullmatch(name.lower()):
            capability = f"{found[1] or found[3]}.{found[2] or found[4]}"
            return f"a GPU of capability {capability}", capability, of_capability(capability)
        typed = self.gpu_typed(name)
        return typed and (typed[0], typed[1].capability, typed[1])

    def arm_processor(self, name: str, gpu: KnownGpu) -> str | None:
        """Return the processor beside a GPU that exists in ARM machines only, "" if unknown.

        None if it is a card, which any machine may have.
        """
        for pattern, processor in gpu.arm_only.items():
            bare = re.fullmatch(pattern.replace(" ", ""), _bare(name))
            if bare or _best_match({"": (pattern,)}, _plain(_VENDOR, name)) is not None:
                return processor
        return None if gpu.names else next(iter(gpu.arm_only.values()), None)

    def gpus_like(self, name: str) -> list[str]:
        """Return names of products with a number of a name in them, or the most similar one."""
        import difflib  # 5 ms, for errors only

        offered = {_bare(each): each for gpu in self.gpu.values() for each in gpu.offered}
        words = [_bare(word) for word in name.split() if re.search(r"\d", word)]
        found = [each for text, each in offered.items() if any(w and w in text for w in words)]
        close = difflib.get_close_matches(_bare(name), list(offered), n=1, cutoff=0.8)
        return found[:_MOST_LIKE] or [offered[text] for text in close]

    def processor_named(self, name: str) -> KnownProcessor | None:
        """Return the generation of a CPU by its key, title or name, such as `Ryzen 9 7950X`."""
        if name in self.processor:
            return self.processor[name]
        for processor in self.processor.values():
            if squashed(processor.title) == squashed(name):
                return processor
        patterns = {key: processor.names for key, processor in self.processor.items()}
        for pattern, whole in (("^$", ""), *_CPU_FORMS):
            form = re.sub(pattern, whole.replace("$1", r"\g<1>"), name.lower())
            if key := _best_match(patterns, _plain(_CPU_VENDOR, form)):
                return self.processor[key]
        return None

    def other_vendor(self, name: str) -> str:
        """Return the vendor of a GPU that is none of NVIDIA, or an empty text."""
        plain = " ".join(name.lower().split())
        vendors = self.other.items()
        matching = (v for v, it in vendors if any(re.fullmatch(p, plain) for p in it.names))
        return next(matching, "")


def _plain(vendor: re.Pattern[str], name: str) -> str:
    """Return a name in lower case without the vendor and with single spaces."""
    return " ".join(vendor.sub(" ", name.lower()).split())


def _best_match(known: Mapping[str, Iterable[str]], plain: str) -> str | None:
    """Return the key with the pattern that matches most of a name before its suffix, or None."""
    found = [
        (len(match[1]), key)
        for key, patterns in known.items()
        for pattern in patterns
        if (match := re.fullmatch(f"({pattern})(?:{_SUFFIX.pattern})?", plain))
    ]
    return max(found)[1] if found else None


def squashed(name: str) -> str:
    """Return the letters and digits of a name in lower case."""
    return re.sub("[^a-z0-9]", "", name.lower())


def _bare(name: str) -> str:
    """Return a name of a GPU without what does not count in a short one."""
    return _FILLER.sub("", squashed(name))


def _ends(name: str, number: str) -> bool:
    """Return whether a bare name ends with a number and not only with its last digits."""
    start = name.removesuffix(number)
    return start != name and not start[-1:].isdecimal()


@functools.cache
def load() -> KnownHardware:
    """Read the facts that come with the program."""
    raw: dict[str, Any] = {}
    for name in _FILES:
        raw |= tomllib.loads(files.own_text(__package__, f"known/{name}.toml"))
    return msgspec.structs.replace(msgspec.convert(raw, KnownHardware), raw=raw)


class KnownRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that every matrix has, or that one adds, and where its values are from."""

    kind: str  #: gpu, cpu, pin, rule or patch
    key: str
    value: str  #: the row in words
    source: str  #: where the known values are from, with a date; empty for a row of matrix.toml
    replaced: tuple[str, ...]  #: keys whose value is that of matrix.toml; all of an added row


def rows(own: dict[str, Any]) -> Iterator[KnownRow]:
    """Yield the known rows and those of a matrix, whose tables `own` are as it writes them."""
    merged = with_known({"pin": {}, **own})
    known = {kind: _by_key(load().raw[kind]) for kind in ("gpu", "cpu", "pin", "rule", "patch")}
    for kind, ours in known.items():
        theirs = _by_key(own.get(kind, {}))
        for key, row in (ours | _by_key(merged[kind])).items():
            base, replaced = ours.get(key, {}), theirs.get(key, {})
            facts = [str(base[name]) for name in ("source", "checked") if name in base]
            shown = [
                _words(row[name]) if len(_SHOWN[kind]) == 1 else f"{name} {_words(row[name])}"
                for name in _SHOWN[kind]
                if row.get(name)
            ]
            yield KnownRow(
                kind=kind,
                key=key,
                value=", ".join(shown),
                source=", checked ".join(facts),
                replaced=tuple(k for k, value in replaced.items() if base.get(k) != value),
            )


def _by_key(table: Any) -> dict[str, Any]:  # noqa: ANN401 - any value of TOML
    """Return rows by their keys; rules by their ids."""
    return {rule["id"]: rule for rule in table} if isinstance(table, list) else table


def _words(value: Any) -> str:  # noqa: ANN401 - any value of TOML
    """Return a value of a row in words."""
    if isinstance(value, dict):
        value = dict.fromkeys(each for values in value.values() for each in values)
    return value if isinstance(value, str) else " ".join(map(str, value))


def with_known(own: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a matrix with the known rows, and with the known values of its own rows.

    A row is known by its key, a rule by its id, a pin by its revision, the CUDA of a release by its
    version. The rules of the matrix come first. Values of a wrong type are left for the reader.
    """
    known = load().raw
    merged = dict(own)
    for kind in ("gpu", "cpu", "patch"):
        merged[kind] = _rows(kind, own.get(kind, {}))
    if isinstance(rules := own.get("rule", []), list):
        by_id = {rule["id"]: rule for rule in known["rule"]}
        ids = [_get(rule, "id") for rule in rules]
        others = [rule for key, rule in by_id.items() if key not in ids]
        merged["rule"] = [_over(_get(by_id, _get(it, "id")) or {}, it) for it in rules] + others
    if isinstance(pins := own.get("pin"), dict):
        merged["pin"] = {key: _pin(key, pin) for key, pin in pins.items()}
    releases = own.get("release")
    for release in releases.values() if isinstance(releases, dict) else ():
        if isinstance(cuda := _get(release, "cuda"), dict):
            facts = _get(known["cuda"], _get(cuda, "version")) or {}
            release["cuda"] = {key: facts[key] for key in OF_CUDA if key in facts} | cuda
    return merged


def _rows(kind: str, own: Any) -> Any:  # noqa: ANN401 - any value of TOML
    """Return the known rows of a kind, with those of a matrix over them."""
    if not isinstance(own, dict):
        return own
    rows = {
        key: {name: value for name, value in row.items() if name not in OURS}
        for key, row in load().raw[kind].items()
    }
    for key, row in own.items():
        new = {"title": key} if kind == "cpu" else {}
        rows[key] = _over(rows.get(key, new), row)
    return rows


def _pin(key: str, own: Any) -> Any:  # noqa: ANN401 - any value of TOML
    """Return a pin with what is known of its revision, else of its key.

    One with facts of its own was evaluated: it has no known fixes or doubts that it does not name.
    """
    known = load().raw["pin"]
    by_revision = {pin["rev"]: pin for pin in known.values()}
    facts = _get(by_revision, _get(own, "rev")) or known.get(key, {})
    if _get(own, "facts"):
        facts = {name: value for name, value in facts.items() if name not in {"has", "unconfirmed"}}
    pin = _over(facts, own)
    if isinstance(_get(own, "cuda"), dict) and "cuda" in facts:
        pin["cuda"] = facts["cuda"] | own["cuda"]
    return pin


def _get(table: Any, key: Any) -> Any:  # noqa: ANN401 - any values of TOML
    """Return a value of a table; None without it, and for a table or key of a wrong type."""
    return table.get(key) if isinstance(table, dict) and isinstance(key, str) else None


def _over(known: dict[str, Any], own: Any) -> Any:  # noqa: ANN401 - any value of TOML
    """Return a row of a matrix with the known values that it does not replace."""
    return known | own if isinstance(own, dict) else own


@functools.cache
def of_capability(capability: str | None) -> KnownGpu | None:
    """Return the known GPU architecture of a compute capability, or None."""
    return next((gpu for gpu in load().gpu.values() if gpu.capability == capability), None)
