"""Hostile values in every string field of matrix.toml: refused, or what they are in every recipe.

The fields come from the JSON schema. A value that is accepted must evaluate to itself in real Nix,
by the checks of category evaluation, and must leave the structure of all pages as it was.
"""

from __future__ import annotations

import functools
import random
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from markdown_it import MarkdownIt

from build_pytorch.base import digest
from build_pytorch.base.errors import MatrixError
from build_pytorch.generate import docs, recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify import registry, verification
from fuzz.fields import Trail, at, replaced, schema_fields, string_places, with_place

COUNT = 3000
"""Values of one run, unless another number is given."""
_TOGETHER = 100
"""Matrices whose recipes one Nix process evaluates."""

MATRIX = Path(__file__).resolve().parents[2] / "matrix.toml"
MORE = """
[[builder]]
uri = "ssh-ng://nix@thor.example.org"
platforms = ["aarch64-linux"]
key = "/etc/nix/builder_key"
features = ["big-parallel"]
host_key = "c3NoLWVkMjU1MTk="
"""
"""Tables that the schema has and the matrix has not."""

PIECES = [
    *"'\"$\\{}\n\t\r #;/*()<>|&`~[]!@%^=+:,?._-aZ0é中",
    "''", "'''", "${", "$${", "''${", "''$", "''\\", '${builtins.abort "x"}', "${builtins.trace 1 2}",
    "*/", "/*", "//", "..", "../", "/etc/passwd", "-rf", "--help", "$(id)", "`id`", "\0", "\x1b[31m",
    "\x1b]0;t\x07", "\x85", "\x9b", "\u202e", "\u2028", "\ufeff", "\u200b", "\U0001f600", "&lt;", "<b>",
    "</pre>", "</td>", "</table>", "<!--", "-->", "<!-- end generated: counts -->", "__", "**", "~~", "$x$",
    "[a](javascript:b)", "![a](b)", "```", "```mermaid", "%%{init}%%", "| a | b |", "\n\n# a\n\n", "if",
    "let", "rec", "with", "null", "true", "1", "sm_120", "x" * 300, "sha256:" + "a" * 64,
    "sha256-" + "A" * 43 + "=", "v1.0", "main", "https://x/", "\\n", "\\u0000",
]  # fmt: skip
VISIBLE = [piece for piece in PIECES if piece.isprintable()]
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
INLINE_TEXT = {"text", "text_special", "softbreak"}
NIXPKGS_SETTINGS = {".release.*.nixpkgs.config[]", ".rule[].effect.config[]"}
"""Names of settings of nixpkgs: with another name in place of allowUnfree, nixpkgs refuses torch."""

_OTHERS = ("eval-distinct", "eval-companion")
"""Checks that compare recipes with each other, and those of companions, which are not written."""

CHECKS = [c.id for c in registry.checks_of("evaluation") if not c.id.startswith(_OTHERS)]


def run(seed: int, count: int) -> Counter[str]:
    """Try so many values. Raises AssertionError with the value and the field that show a fault."""
    draw = random.Random(seed)
    known = complete(tomllib.loads(MATRIX.read_text() + MORE))
    originals = {"": Original(known)}
    places: dict[str, list[tuple[Original, Trail]]] = {}
    for field, trail in string_places(known):
        places.setdefault(field, []).append((originals[""], trail))
    fields = list(dict.fromkeys(schema_fields()))
    for field in fields:
        if field not in places:
            document, trail = with_place(known, field)
            places[field] = [(Original(document), trail)]
    counts: Counter[str] = Counter({"fields": len(fields)})
    accepted: list[tuple[str, Matrix]] = []
    open_fields: list[str] = []  # in which a value was accepted: they are tried more often
    for number in range(count):
        field = fields[number % len(fields)]
        if open_fields and draw.random() < 0.5:
            field = draw.choice(open_fields)
        original, trail = draw.choice(places[field])
        value = hostile(draw, at(original.document, trail))
        changed = replaced(original.document, trail, value)
        if changed is None:
            continue
        what = f"{field} = {value!r}"
        if fleet := parsed(tomlkit.dumps(changed), what):
            check_pages(fleet, original.structure, what)
            if field not in NIXPKGS_SETTINGS:
                accepted.append((what, fleet))
            open_fields.append(field)
        counts[f"values {'accepted' if fleet else 'refused'}"] += 1
    counts["fields with accepted values"] = len(set(open_fields))
    for start in range(0, len(accepted), _TOGETHER):
        counts["recipes evaluated"] += evaluate(accepted[start : start + _TOGETHER])
    return counts


class Original:
    """A matrix in which values are replaced, and the elements of its pages."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @functools.cached_property
    def structure(self) -> dict[str, Counter[str]]:
        """The elements of each page; nothing if the matrix is refused as it is."""
        fleet = parsed(tomlkit.dumps(self.document), "no value")
        return {page: shape(text) for page, text in pages(fleet).items()} if fleet else {}


def parsed(text: str, what: str) -> Matrix | None:
    """Return a matrix, or None if it is refused; each line of the refusal must name a place."""
    try:
        return matrix_reader.parse(text)
    except MatrixError as error:
        lines = str(error).split("\n")
    for line in lines:
        assert re.match(r"matrix\.toml:[1-9][0-9]*: |and \d+ more errors", line), (what, line)
    return None


def check_pages(fleet: Matrix, structure: Mapping[str, Counter[str]], what: str) -> None:
    """Every page is intact and has the elements that it had before."""
    for page, text in pages(fleet).items():
        assert digest.is_intact(text) or "#" in page, (what, page)
        if page in structure:
            assert shape(text) == structure[page], (what, page)


def hostile(draw: random.Random, old: str) -> str:
    """Return some pieces, alone or inside the old value; half of the texts are printable."""
    pieces = PIECES if draw.random() < 0.5 else VISIBLE
    text = "".join(draw.choices(pieces, k=draw.choice((1, 1, 2, 3, 6))))
    place = draw.randint(0, len(old))
    return draw.choice((text, old[:place] + text + old[place:]))


def pages(fleet: Matrix) -> dict[str, str]:
    """Return all generated Markdown of a matrix; regions have the page and their name as key."""
    rendered = docs.render(fleet, recipes.render(fleet))
    texts = {page: text for page, text in rendered.items() if ".md" in page}
    for text in texts.values():
        assert not re.search(r"<!-- (begin|end) generated[^\n]*-->", text), text
    return texts


def shape(text: str) -> Counter[str]:
    """Return how many elements of each kind a page has, except text."""
    counts: Counter[str] = Counter()
    for token in MARKDOWN.parse(text):
        counts[token.type] += 1
        counts.update(c.type for c in token.children or () if c.type not in INLINE_TEXT)
    return counts


def evaluate(accepted: list[tuple[str, Matrix]]) -> int:
    """Evaluate some recipes of each matrix in one process. Return the number of recipes."""
    variants: list[Variant] = []
    described: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        for number, (what, fleet) in enumerate(accepted):
            texts = recipes.render(fleet)
            of_kind = {(v.group.kind, v.cpu.platform): v for v in fleet.variants}
            for variant in of_kind.values():
                folder = f"m{number}/{variant.release.folder}"
                release = msgspec.structs.replace(variant.release, folder=folder, manual=())
                moved = msgspec.structs.replace(variant, release=release)
                (Path(name) / moved.path).parent.mkdir(parents=True, exist_ok=True)
                (Path(name) / moved.path).write_text(texts[variant.path])
                variants.append(moved)
                described[moved.path] = what
        releases = {f"r{number}": variant.release for number, variant in enumerate(variants)}
        many = msgspec.structs.replace(accepted[0][1], variants=tuple(variants), releases=releases)
        result = verification.verify(many, Path(name), only=CHECKS)
    wrong = [(described.get(f.path), f.check, f.found, f.expected) for f in result.findings]
    assert not wrong, wrong[:3]
    not_run = [outcome.check.id for outcome in result.outcomes if outcome.state == "skipped"]
    assert set(not_run) <= {"eval-release-nix"}, not_run
    return len(variants)


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Return a matrix that has more of the optional fields; the rest is made from the schema."""
    next(iter(document["gpu"].values()))["last_cuda"] = "13.9"
    first = next(iter(document["release"].values()))
    waive = {"no-fake-hash": "ours"}
    file = "pytorch-python313-cuda13_0-sm90-avx2.nix"
    first["manual"] = [{"file": file, "reason": "ours", "waive": waive}]
    without = [{"rule": "magma-clock-rate", "reason": "ours"}]
    setting = {"environment": {"USE_X": "1"}, "cmake_flags": ["-DX=1"], "without": without}
    first["setting"] = [{"variants": ["sm90-*"], **setting}]
    for release in document["release"].values():
        if "rev" in release.get("nixpkgs", {}):
            release["nixpkgs"]["sha256"] = release["torch"]["hash"]
            release["nixpkgs"]["sha256_of"] = release["nixpkgs"]["rev"]
    return document
