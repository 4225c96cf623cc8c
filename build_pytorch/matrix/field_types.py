"""The types of single values in matrix.toml, and the errors of values that do not fit their type.

Each type has a pattern and a description. Values of these types are safe in Nix strings, shell
text and argument lists. Error messages and the generated reference quote the descriptions as
"allowed: DESCRIPTION".
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from build_pytorch.base.console import shortened
from build_pytorch.base.errors import near_miss

Trail = tuple[str | int, ...]
"""The path of a value in matrix.toml: keys of tables and indices of arrays."""


def like(pattern: str, description: str, longest: int = 1000) -> Meta:
    """Return the constraint for a string that matches a pattern as a whole."""
    # Python's `$` alone also matches before a final newline.
    return Meta(pattern=rf"^{pattern}$(?!\n)", description=description, max_length=longest)


def filled(element: str, kind: str = "list") -> Meta:
    """Return the constraint for a list or a table of tables that is not empty."""
    return Meta(min_length=1, description=f"a {kind} with at least one {element}")


_SHA256: Final = "sha256-[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
"""32 bytes leave two zero bits in the last base64 digit, hence its smaller alphabet."""
CONTROL: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Control characters would end a comment; bidirectional overrides would disguise its text."""

_NAME: Final = 60
"""Maximum length of the four parts of a file name, of which Linux takes 255 characters."""
_PATH: Final = 200
"""Maximum length of a path in the checkout, and so of each of its names."""

Platform = Literal["x86_64-linux", "aarch64-linux", "aarch64-darwin"]
Kind = Literal["gpu", "cpu-only", "mps"]
Fix = Literal[
    "cccl-shim",
    "find-cuda-toolkit-stub",
    "cupti-paths",
    "codegen-condition",
    "own-libraries",
    "own-capabilities",
]
"""Changes of a build that the templates know by name."""

Blas = Literal["openblas", "mkl"]
"""Libraries for linear algebra on the CPU, by the names of their packages in nixpkgs."""

Key = Annotated[str, like("[a-z0-9][a-z0-9_]*", "a-z, 0-9 and _ (a dot breaks Flox)", _NAME)]
NameEnd = Annotated[str, like("(-[a-z0-9][a-z0-9_-]*)?", "- and a word such as -nightly", _NAME)]
Name = Annotated[str, like("[a-z0-9][a-z0-9_-]*", "a-z, 0-9, _ and - (a dot breaks Flox)", _NAME)]
NixName = Annotated[str, like("[a-zA-Z_][a-zA-Z0-9_]*", "a Nix identifier such as cudaPackages_13")]
NoText = Annotated[str, like(f"[^{CONTROL}]*", "one line of text, or empty")]
Text = Annotated[str, like(f"[^{CONTROL}]+", "one line of text")]
_RELEASE: Final = r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}(rc[0-9]{1,3})?"
Version = Annotated[str, like(_RELEASE, "a version such as 2.10.0")]
Python3 = Annotated[str, like(r"3\.[0-9]{1,2}", "a version of Python such as 3.13")]
_DAY: Final = "20[0-9]{2}{0}(0[1-9]|1[0-2]){0}(0[1-9]|[12][0-9]|3[01])"
_NIGHTLY: Final = r"[0-9]{1,4}\.[0-9]{1,4}\.0\.dev" + _DAY.replace("{0}", "")
TorchVersion = Annotated[
    str, like(f"({_RELEASE}|{_NIGHTLY})", "a version such as 2.10.0 or 2.11.0.dev20251222")
]
CudaVersion = Annotated[str, like(r"[0-9]{1,2}\.[0-9]", "a CUDA version such as 13.0")]
_DRIVER: Final = r"[0-9]{3}(\.[0-9]{1,3}){1,2}"
DriverVersion = Annotated[str, like(_DRIVER, "a driver version such as 580.65.06")]
_DOTTED: Final = "a dotted compute capability such as 12.0, never sm_120"
Capability = Annotated[str, like(r"[1-9][0-9]?\.[0-9]", _DOTTED)]
Rev40 = Annotated[str, like("[0-9a-f]{40}", "a full Git revision, 40 hex digits")]
_REV: Final = r"(v[0-9]+(\.[0-9]+){1,2}(-?rc[0-9]+)?|[0-9a-f]{40})"
Rev = Annotated[str, like(_REV, "a tag such as v2.10.0 or 40 hex digits, never a branch")]
NoRev = Annotated[str, like(f"({_REV})?", "the rev of the hash, or empty without a hash")]
NoRev40 = Annotated[str, like("([0-9a-f]{40})?", "a full Git revision, or empty without a hash")]
_SRI: Final = "an SRI hash (sha256- and 44 base64 characters), or empty if not fetched yet"
NoSri = Annotated[str, like(f"({_SHA256})?", _SRI)]
GithubName = Annotated[str, like("[A-Za-z0-9][A-Za-z0-9_.-]*", "a GitHub owner or repository")]
_HTTPS: Final = "https://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/[A-Za-z0-9._/~%+=?&#-]+"
Url = Annotated[str, like(_HTTPS, "an https:// URL")]
NoUrl = Annotated[str, like(f"({_HTTPS})?", "an https:// URL, or empty")]
Organization = Annotated[
    str, like("([A-Za-z0-9][A-Za-z0-9_-]*)?", "an organization on FloxHub, or empty")
]
FileName = Annotated[
    str,
    like(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\.nix", "the name of a .nix file, without a folder", _PATH),
]
PatchName = Annotated[
    str, like(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\.patch", "the name of a .patch file, without a folder")
]
_PART: Final = r"\.?[A-Za-z0-9_][A-Za-z0-9_.-]*"
Folder = Annotated[str, like(f"{_PART}(/{_PART})*", "a folder below the root, without ..", _PATH)]
_DOC: Final = r"docs(?!/reference/)(/[A-Za-z0-9][A-Za-z0-9_.-]*)+\.md"
DocPath = Annotated[str, like(_DOC, "a Markdown file below docs/, not in docs/reference/", _PATH)]
Flag = Annotated[str, like("-m[a-z0-9][A-Za-z0-9=+._-]*", "a machine flag of gcc, like -mavx2")]
_OPTIONS_OF_RECIPES: Final = (
    "USE_CUDA|CUDA_VERSION|TORCH_BUILD_VERSION|CMAKE_CUDA_FLAGS|CMAKE_CUDA_ARCHITECTURES"
)
_OPTION: Final = f"-D(?!({_OPTIONS_OF_RECIPES})=)[A-Za-z][A-Za-z0-9_]*=[A-Za-z0-9][A-Za-z0-9_.+/-]*"
CmakeFlag = Annotated[
    str, like(_OPTION, "a CMake option such as -DUSE_X=OFF that recipes do not set")
]
_SET_BY_RECIPES: Final = (
    "CXXFLAGS|CFLAGS|CUDAFLAGS|NIX_CFLAGS_COMPILE|MAX_JOBS|NIX_BUILD_CORES|PATH|TERM|USE_CUDA|"
    "PYTORCH_BUILD_VERSION|TORCH_CUDA_ARCH_LIST|CMAKE_CUDA_ARCHITECTURES"
)
_VARIABLE: Final = (
    "a variable such as USE_CUDNN that recipes do not set; "
    "for flags NIX_CXXFLAGS_COMPILE or NVCC_APPEND_FLAGS"
)
Variable = Annotated[str, like(f"(?!({_SET_BY_RECIPES})$)[A-Z][A-Z0-9_]*", _VARIABLE)]
_SETTING: Final = "-{0,2}[A-Za-z0-9][A-Za-z0-9_.,+=/:-]*"
Setting = Annotated[
    str,
    like(f"{_SETTING}( {_SETTING})*", "words of letters, digits and _.,+=/:- with single spaces"),
]
_BOUND: Final = r"(==|<=|>=|<|>)[0-9]{1,4}(\.[0-9]{1,4}){0,2}"
Range = Annotated[str, like(f"{_BOUND}(, ?{_BOUND})*", "bounds of a version such as >=12.8, <13.0")]
Date = Annotated[str, like(_DAY.replace("{0}", "-"), "a date such as 2026-02-17")]
Word = Annotated[str, like("[a-z0-9][a-z0-9_-]*", "a word such as avx512_vnni or big-parallel")]
_CONTENT: Final = "a fix of pin.*.has, or a patch such as pytorch-pr-108847.patch"
Content = Annotated[str, like("[A-Za-z0-9][A-Za-z0-9_.+-]*", _CONTENT, _PATH)]
_FEATURE: Final = "[a-z0-9][a-z0-9_.-]*"
SystemFeature = Annotated[str, like(_FEATURE, "a system feature such as gccarch-x86-64-v3")]
Macro = Annotated[str, like("__[A-Z][A-Z0-9_]*", "a predefined macro such as __AVX512BF16__")]
_ABSOLUTE: Final = "(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*"
CacheFolder = Annotated[str, like(_ABSOLUTE, "the absolute path of a folder, or empty")]

Size = Annotated[float, Meta(gt=0, le=65536, description="a size in GiB")]
Hours = Annotated[float, Meta(gt=0, le=10000, description="hours above 0, up to 10000")]
Jobs = Annotated[int, Meta(ge=1, le=1024, description="a number from 1 to 1024")]
Level = Annotated[int, Meta(ge=1, le=99, description="a level from 1 to 99, higher is newer")]
Gib = Annotated[int, Meta(ge=1, le=1024, description="a number of GiB from 1 to 1024")]

NonEmptyKeys = Annotated[tuple[Key, ...], filled("key")]
NonEmptyWords = Annotated[tuple[Word, ...], filled("word")]
Hosts = Annotated[
    dict[Platform, Annotated[tuple[Text, ...], filled("name")]],
    filled("platform and its products", "table"),
]

# --- errors of a document that does not fit a msgspec type ---

_SHOWN: Final = 80
"""Maximum length of a quoted value, in characters."""
_MOST: Final = 20
"""Maximum number of errors in one message, and of names in one error."""
_WORDS: Final = {
    "object": "a table of keys",
    "array": "a list",
    "boolean": "true or false",
    "string": "a text",
}
"""What a person calls the types of a JSON schema."""

Fault = tuple[Trail, str]
"""The path of a wrong value, and what is wrong."""


def misfits(value: Any, kind: Any) -> list[Fault]:
    """Return the path and the explanation of each innermost value that does not fit its type.

    msgspec decides on every value; its own error names only the first one.
    """
    try:
        msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        return _inner_misfits(value, kind) or [((), _explained(value, kind))]
    return []


def _inner_misfits(value: Any, kind: Any) -> list[Fault]:
    """Return the misfits in a table or a list; none if it is wrong as a whole."""
    while get_origin(kind) in {Annotated, UnionType, Union}:  # of `X | None` it is X
        kind = next(part for part in get_args(kind) if part is not NoneType)
    faults: list[Fault] = []
    kinds: dict[Any, Any] = {}  # of the parts of the value
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        kinds = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        required = [it.encode_name for it in msgspec.structs.fields(kind) if it.required]
        unknown = [key for key in value if key not in kinds][: 2 * _MOST]
        hints = {key: near_miss(key, kinds) for key in unknown}
        said = f"unknown key; allowed: {listed(kinds)}"
        faults = [((key,), said + hint) for key, hint in hints.items()]
        missing = [key for key in required if key not in value and f'"{key}"' not in str(hints)]
        faults += [((key,), "missing; add it") for key in missing]
    elif isinstance(value, dict) and get_origin(kind) is dict:
        key_kind, value_kind = get_args(kind)
        faults = [((key,), what) for key in value for _, what in misfits(key, key_kind)]
        kinds = dict.fromkeys(value, value_kind)
    elif isinstance(value, list) and get_origin(kind) is tuple:
        kinds = dict.fromkeys(range(len(value)), get_args(kind)[0])
    for step in [step for step in kinds if isinstance(value, list) or step in value]:
        faults += [((step, *trail), what) for trail, what in misfits(value[step], kinds[step])]
    return faults


def _explained(value: Any, kind: Any) -> str:
    """Return what is found and what is allowed."""
    schema = msgspec.json.schema(kind)
    longest = schema.get("maxLength")
    if longest and isinstance(value, str) and len(value) > longest:
        return wrong(f"{len(value)} characters", f"at most {longest} characters")
    found = quoted(value)
    if isinstance(value, (dt.date, dt.time)):
        found = f"the date or time {value.isoformat()} without quotes"
    hint = near_miss(value, schema.get("enum", ())) if isinstance(value, str) else ""
    return f"{wrong(found, allowed(schema))}{hint}"


def wrong(found: str, allowed_: str) -> str:
    """Return what is wrong with a value."""
    return f"found {found}; allowed: {allowed_}"


def dotted(trail: Trail) -> str:
    """Return a path as text, shortened: such as `release.NAME.group[2].cpu[0]`."""
    out = ""
    for step in trail:
        key = shortened(str(step), _SHOWN // 2)
        plain = re.fullmatch("[A-Za-z0-9_-]+", key)
        out += f"[{step}]" if isinstance(step, int) else f".{key if plain else json.dumps(key)}"
    out = out.removeprefix(".") or "top level"
    return out if len(out) <= 3 * _SHOWN else f"{out[:_SHOWN]}...{out[-_SHOWN:]}"


def message(errors: Sequence[str]) -> str:
    """Join errors, one a line, and replace those after the 20th by their number."""
    more = len(errors) - _MOST
    return "\n".join([*errors[:_MOST], *([f"and {more} more errors"] if more > 0 else [])])


def allowed(schema: dict[str, Any]) -> str:
    """Return what a JSON schema allows, in words."""
    if choices := [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]:
        return allowed(choices[0])
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = schema.get("type", "object")
    word = _WORDS.get(kind, kind)
    # The description of a struct is its docstring, which describes the table.
    return word if "properties" in schema else str(schema.get("description", word))


def quoted(value: Any) -> str:
    """Return a value as TOML writes it, shortened to 80 characters."""
    try:
        return shortened(json.dumps(value, default=str, ensure_ascii=False), _SHOWN)
    except ValueError:  # an integer of thousands of digits, written as 0xffff...
        return "a number of thousands of digits"


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them: the first 20 and the number of the others."""
    short = [shortened(name, _SHOWN // 2) for name in names]
    more = [f"and {len(short) - _MOST} more"] if len(short) > _MOST else []
    return ", ".join(short[:_MOST] + more)
