r"""The kinds of values that matrix.toml may hold, each with its pattern.

This is the first wall between the matrix and the Nix strings, shell text and argv it reaches.
Patterns end in `$(?!\n)` because Python's `$` also matches before a final newline.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

END = r"$(?!\n)"

Platform = Literal["x86_64-linux", "aarch64-linux"]
Workload = Literal["inference", "training"]
CudaFix = Literal["cccl-shim", "find-cuda-toolkit-stub"]

Key = Annotated[
    str,
    Meta(
        pattern="^[a-z0-9][a-z0-9_]*" + END,
        description="lower-case letters, digits and _ (a dot breaks Flox)",
    ),
]
Name = Annotated[
    str,
    Meta(
        pattern="^[a-z0-9][a-z0-9_-]*" + END,
        description="lower-case letters, digits, _ and - (a dot breaks Flox)",
    ),
]
NixName = Annotated[
    str,
    Meta(
        pattern="^[a-zA-Z_][a-zA-Z0-9_]*" + END,
        description="a Nix identifier such as cudaPackages_13",
    ),
]
Text = Annotated[
    str,
    # Control characters would end a comment; bidirectional overrides would hide what it says.
    Meta(
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+" + END,
        description="one line of text",
    ),
]
Version = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){1,2}(rc[0-9]{1,3})?" + END,
        description="a version such as 2.10.0",
    ),
]
CudaVersion = Annotated[
    str,
    Meta(pattern=r"^[0-9]{1,2}\.[0-9]" + END, description="a CUDA version such as 13.0"),
]
DriverVersion = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{3}(\.[0-9]{1,3}){1,2}" + END,
        description="a driver version such as 580.65.06",
    ),
]
Capability = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]?\.[0-9]" + END,
        description="a dotted compute capability such as 12.0, never sm_120",
    ),
]
Rev40 = Annotated[
    str, Meta(pattern="^[0-9a-f]{40}" + END, description="a full Git revision, 40 hex digits")
]
Rev = Annotated[
    str,
    Meta(
        pattern=r"^(v[0-9]+(\.[0-9]+){1,2}(-?rc[0-9]+)?|[0-9a-f]{40})" + END,
        description="a version tag such as v2.10.0 or 40 hex digits, never a branch",
    ),
]
Sri = Annotated[
    str,
    # 32 bytes leave two zero bits in the last digit, hence its shorter alphabet.
    Meta(
        pattern="^sha256-[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=" + END,
        description="an SRI hash: sha256- and 44 base64 characters",
    ),
]
NoSri = Annotated[
    str,
    # An empty hash stands for: nobody has taken it yet.
    Meta(
        pattern="^(sha256-[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)?" + END,
        description="an SRI hash, or empty while nobody has taken it",
    ),
]
NoRev40 = Annotated[
    str,
    Meta(
        pattern="^([0-9a-f]{40})?" + END,
        description="a full Git revision, or empty while no hash was taken",
    ),
]
GithubName = Annotated[
    str,
    Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*" + END, description="a GitHub owner or repository"),
]
Url = Annotated[
    str,
    Meta(
        pattern=r"^https://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/[A-Za-z0-9._/~%+=?&-]+" + END,
        description="an https:// URL",
    ),
]
FileName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*\.nix" + END,
        description="the name of a .nix file, without a folder",
    ),
]
PatchName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*\.patch" + END,
        description="the name of a .patch file, without a folder",
    ),
]
Folder = Annotated[
    str,
    Meta(
        pattern=r"^\.?[A-Za-z0-9_][A-Za-z0-9_.-]*(/\.?[A-Za-z0-9_][A-Za-z0-9_.-]*)*" + END,
        description="a folder below the root, with / between its parts and without ..",
    ),
]
DocPath = Annotated[
    str,
    Meta(
        pattern=r"^docs/[A-Za-z0-9][A-Za-z0-9_.-]*\.md" + END,
        description="a Markdown file in docs/",
    ),
]
Flag = Annotated[
    str,
    Meta(
        pattern="^-m[a-z0-9][A-Za-z0-9=+._-]*" + END,
        description="a machine flag of gcc such as -mavx2",
    ),
]
Word = Annotated[
    str,
    Meta(
        pattern="^[a-z0-9][a-z0-9_-]*" + END,
        description="a lower-case word such as avx512_vnni or big-parallel",
    ),
]
Macro = Annotated[
    str,
    Meta(
        pattern="^__[A-Z][A-Z0-9_]*" + END,
        description="a predefined macro such as __AVX512BF16__",
    ),
]
BuilderUri = Annotated[
    str,
    Meta(
        pattern=r"^ssh(-ng)?://[A-Za-z0-9][A-Za-z0-9@._:-]*(\?[A-Za-z0-9._=&/%:-]+)?" + END,
        description="a builder's address such as ssh://nix@thor.example.org",
    ),
]
KeyFile = Annotated[
    str,
    Meta(
        pattern=r"^/[A-Za-z0-9._/-]+" + END, description="the absolute path of an SSH private key"
    ),
]
Base64 = Annotated[str, Meta(pattern="^[A-Za-z0-9+/]+={0,2}" + END, description="a key in base64")]
Size = Annotated[float, Meta(gt=0, le=65536, description="a size in GiB")]
Hours = Annotated[float, Meta(gt=0, le=10000, description="a number of hours")]
Jobs = Annotated[int, Meta(ge=1, le=1024, description="a number of jobs from 1 to 1024")]
Level = Annotated[int, Meta(ge=1, le=99, description="a level from 1 to 99, higher is newer")]
Gib = Annotated[int, Meta(ge=1, le=1024, description="a number of GiB from 1 to 1024")]


NonEmptyKeys = Annotated[
    tuple[Key, ...], Meta(min_length=1, description="a list with at least one key")
]
NonEmptyWords = Annotated[
    tuple[Word, ...], Meta(min_length=1, description="a list with at least one word")
]
NonEmptyMacros = Annotated[
    tuple[Macro, ...], Meta(min_length=1, description="a list with at least one macro")
]
NonEmptyFlags = Annotated[
    tuple[Flag, ...], Meta(min_length=1, description="a list with at least one gcc flag")
]
NonEmptyTexts = Annotated[
    tuple[Text, ...], Meta(min_length=1, description="a list with at least one name")
]
