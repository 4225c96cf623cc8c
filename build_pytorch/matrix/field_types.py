"""The types of single values in matrix.toml, each with its pattern and its description.

Values of these types are safe in Nix strings, shell text and argument lists. Error messages and
the generated reference quote the descriptions as "allowed: DESCRIPTION".
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

END: Final = r"$(?!\n)"
"""End of a pattern: Python's `$` alone also matches before a final newline."""


def like(pattern: str, description: str) -> Meta:
    """Return the constraint for a string that matches a pattern as a whole."""
    return Meta(pattern=f"^{pattern}{END}", description=description)


def list_meta(element: str) -> Meta:
    """Return the constraint for a list that is not empty."""
    return Meta(min_length=1, description=f"a list with at least one {element}")


def tables_meta(element: str) -> Meta:
    """Return the constraint for a table of tables that is not empty."""
    return Meta(min_length=1, description=f"a table with at least one {element}")


_SHA256: Final = "sha256-[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
"""32 bytes leave two zero bits in the last base64 digit, hence its smaller alphabet."""
_CONTROL: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Control characters would end a comment; bidirectional overrides would disguise its text."""

Platform = Literal["x86_64-linux", "aarch64-linux"]
Workload = Literal["inference", "training"]
CudaFix = Literal["cccl-shim", "find-cuda-toolkit-stub"]

HOSTS_META: Final = Meta(
    min_length=1,
    description="a table of platforms with the products that exist for each",
    # msgspec leaves the allowed keys of a table out of the schema.
    extra_json_schema={"propertyNames": {"enum": list(get_args(Platform))}},
)

Key = Annotated[
    str, like("[a-z0-9][a-z0-9_]*", "lower-case letters, digits and _ (a dot breaks Flox)")
]
Name = Annotated[
    str, like("[a-z0-9][a-z0-9_-]*", "lower-case letters, digits, _ and - (a dot breaks Flox)")
]
NixName = Annotated[str, like("[a-zA-Z_][a-zA-Z0-9_]*", "a Nix identifier such as cudaPackages_13")]
Text = Annotated[str, like(f"[^{_CONTROL}]+", "one line of text")]
Version = Annotated[
    str, like(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}(rc[0-9]{1,3})?", "a version such as 2.10.0")
]
CudaVersion = Annotated[str, like(r"[0-9]{1,2}\.[0-9]", "a CUDA version such as 13.0")]
DriverVersion = Annotated[
    str, like(r"[0-9]{3}(\.[0-9]{1,3}){1,2}", "a driver version such as 580.65.06")
]
Capability = Annotated[
    str, like(r"[1-9][0-9]?\.[0-9]", "a dotted compute capability such as 12.0, never sm_120")
]
Rev40 = Annotated[str, like("[0-9a-f]{40}", "a full Git revision, 40 hex digits")]
Rev = Annotated[
    str,
    like(
        r"(v[0-9]+(\.[0-9]+){1,2}(-?rc[0-9]+)?|[0-9a-f]{40})",
        "a version tag such as v2.10.0 or 40 hex digits, never a branch",
    ),
]
NoRev40 = Annotated[
    str, like("([0-9a-f]{40})?", "a full Git revision, or empty if there is no hash yet")
]
Sri = Annotated[str, like(_SHA256, "an SRI hash: sha256- and 44 base64 characters")]
NoSri = Annotated[str, like(f"({_SHA256})?", "an SRI hash, or empty if not fetched yet")]
GithubName = Annotated[str, like("[A-Za-z0-9][A-Za-z0-9_.-]*", "a GitHub owner or repository")]
Url = Annotated[
    str,
    like("https://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/[A-Za-z0-9._/~%+=?&-]+", "an https:// URL"),
]
FileName = Annotated[
    str, like(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\.nix", "the name of a .nix file, without a folder")
]
PatchName = Annotated[
    str, like(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\.patch", "the name of a .patch file, without a folder")
]
Folder = Annotated[
    str,
    like(
        r"\.?[A-Za-z0-9_][A-Za-z0-9_.-]*(/\.?[A-Za-z0-9_][A-Za-z0-9_.-]*)*",
        "a folder below the root, with / between its parts and without ..",
    ),
]
DocPath = Annotated[
    str, like(r"docs(/[A-Za-z0-9][A-Za-z0-9_.-]*)+\.md", "a Markdown file below docs/")
]
Flag = Annotated[str, like("-m[a-z0-9][A-Za-z0-9=+._-]*", "a machine flag of gcc, like -mavx2")]
Word = Annotated[
    str, like("[a-z0-9][a-z0-9_-]*", "a lower-case word such as avx512_vnni or big-parallel")
]
Macro = Annotated[str, like("__[A-Z][A-Z0-9_]*", "a predefined macro such as __AVX512BF16__")]
BuilderUri = Annotated[
    str,
    like(
        r"ssh(-ng)?://[A-Za-z0-9][A-Za-z0-9@._:-]*(\?[A-Za-z0-9._=&/%:-]+)?",
        "a builder's address such as ssh://nix@thor.example.org",
    ),
]
KeyFile = Annotated[str, like("/[A-Za-z0-9._/-]+", "the absolute path of an SSH private key")]
Base64 = Annotated[str, like("[A-Za-z0-9+/]+={0,2}", "a key in base64")]

Size = Annotated[float, Meta(gt=0, le=65536, description="a size in GiB")]
Hours = Annotated[float, Meta(gt=0, le=10000, description="a number of hours")]
Jobs = Annotated[int, Meta(ge=1, le=1024, description="a number from 1 to 1024")]
Level = Annotated[int, Meta(ge=1, le=99, description="a level from 1 to 99, higher is newer")]
Gib = Annotated[int, Meta(ge=1, le=1024, description="a number of GiB from 1 to 1024")]

NonEmptyKeys = Annotated[tuple[Key, ...], list_meta("key")]
NonEmptyWords = Annotated[tuple[Word, ...], list_meta("word")]
NonEmptyMacros = Annotated[tuple[Macro, ...], list_meta("macro")]
NonEmptyFlags = Annotated[tuple[Flag, ...], list_meta("gcc flag")]
NonEmptyTexts = Annotated[tuple[Text, ...], list_meta("name")]
NonEmptyPlatforms = Annotated[tuple[Platform, ...], list_meta("platform")]
