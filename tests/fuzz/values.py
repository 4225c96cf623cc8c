"""Hostile values in every string field of matrix.toml: refused, or what they are in every recipe.

The fields come from the JSON schema. A value that is accepted must evaluate to itself in real Nix,
by the checks of category evaluation, and must leave the structure of all pages as it was.
"""

from __future__ import annotations

import copy
import random
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from markdown_it import MarkdownIt

from build_pytorch.base import digest
from build_pytorch.base.errors import MatrixError
from build_pytorch.generate import docs, recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, MatrixFile, Variant
from build_pytorch.verify import registry, verification

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
CHECKS = [c.id for c in registry.checks_of("evaluation") if c.id != "eval-distinct"]


def run(seed: int, count: int) -> Counter[str]:
    """Try so many values. Raises AssertionError with the value and the field that show a fault."""
    draw = random.Random(seed)
    document = complete(tomllib.loads(MATRIX.read_text() + MORE))
    fields = sorted({field for field, _ in string_places(document)})
    assert set(fields) == set(schema_fields()), "a field of the schema has no place in the document"
    places: dict[str, list[tuple[str | int, ...]]] = {}
    for field, trail in string_places(document):
        places.setdefault(field, []).append(trail)
    counts: Counter[str] = Counter({"fields": len(fields)})
    original = matrix_reader.parse(tomlkit.dumps(document))
    structure = {page: shape(text) for page, text in pages(original).items()}
    accepted: list[tuple[str, Matrix]] = []
    open_fields: list[str] = []  # in which a value was accepted: they are tried more often
    for number in range(count):
        field = fields[number % len(fields)]
        if open_fields and draw.random() < 0.5:
            field = draw.choice(open_fields)
        trail = draw.choice(places[field])
        value = hostile(draw, at(document, trail))
        changed = replaced(document, trail, value)
        if changed is None:
            continue
        what = f"{field} = {value!r}"
        if fleet := parsed(tomlkit.dumps(changed), what):
            check_pages(fleet, structure, what)
            accepted.append((what, fleet))
            open_fields.append(field)
        counts[f"values {'accepted' if fleet else 'refused'}"] += 1
    for start in range(0, len(accepted), _TOGETHER):
        counts["recipes evaluated"] += evaluate(accepted[start : start + _TOGETHER])
    return counts


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
    # Another name in place of allowBroken is what it is, and then nixpkgs refuses the package.
    findings = [f for f in result.findings if "refusing to evaluate" not in f.found]
    wrong = [(described.get(f.path), f.check, f.found, f.expected) for f in findings]
    assert not wrong, wrong[:3]
    not_run = [outcome.check.id for outcome in result.outcomes if outcome.state == "skipped"]
    assert set(not_run) <= {"eval-release-nix"}, not_run
    return len(variants)


# --- the fields ---


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Return a matrix that has every optional field."""
    next(iter(document["gpu"].values()))["last_cuda"] = "13.9"
    for release in document["release"].values():
        waive = {"no-fake-hash": "ours"}
        file = "pytorch-python313-cuda13_0-sm90-avx2.nix"
        release["manual"] = [{"file": file, "reason": "ours", "waive": waive}]
        release["nixpkgs"]["sha256"] = release["torch"]["hash"]
        release["nixpkgs"]["sha256_of"] = release["nixpkgs"]["rev"]
    return document


def schema_fields() -> Iterator[str]:
    """Yield every field of the schema that holds a string, a key of a table included."""
    schema = msgspec.json.schema(MatrixFile)
    yield from _fields(schema, {"$ref": schema["$ref"]}, "")


def _fields(schema: dict[str, Any], node: dict[str, Any], path: str) -> Iterator[str]:
    for choice in node.get("anyOf", ()):
        yield from _fields(schema, choice, path)
    if "$ref" in node:
        yield from _fields(schema, schema["$defs"][node["$ref"].rpartition("/")[2]], path)
    for key, value in node.get("properties", {}).items():
        yield from _fields(schema, value, f"{path}.{key}")
    if isinstance(values := node.get("additionalProperties"), dict):
        yield f"{path}.*key"
        yield from _fields(schema, values, f"{path}.*")
    if "items" in node:
        yield from _fields(schema, node["items"], f"{path}[]")
    if node.get("type") == "string" or isinstance((node.get("enum") or [0])[0], str):
        yield path


def string_places(document: dict[str, Any]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield every string of a matrix, with the name of its field; keys of maps as well."""
    known = set(schema_fields())

    def walk(
        node: Any, path: str, trail: tuple[str | int, ...]
    ) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        if isinstance(node, str):
            yield path, trail
        elif isinstance(node, list):
            for index, value in enumerate(node):
                yield from walk(value, f"{path}[]", (*trail, index))
        elif isinstance(node, dict):
            is_map = f"{path}.*key" in known
            for key, value in node.items():
                if is_map:
                    yield f"{path}.*key", (*trail, key, "*key")
                yield from walk(value, f"{path}.{'*' if is_map else key}", (*trail, key))

    yield from walk(document, "", ())


def at(document: dict[str, Any], trail: tuple[str | int, ...]) -> str:
    """Return the text at a place."""
    node: Any = document
    for step in trail[: -2 if trail[-1] == "*key" else None]:
        node = node[step]
    return str(trail[-2]) if trail[-1] == "*key" else str(node)


def replaced(
    document: dict[str, Any], trail: tuple[str | int, ...], value: str
) -> dict[str, Any] | None:
    """Return the document with another value, or key, at a place. A text occurs once or often:
    what refers to a key is changed with it, so that the key itself is judged.
    """
    changed = copy.deepcopy(document)
    if trail[-1] == "*key":
        *way, key, _ = trail
        table = changed
        for step in way:
            table = table[step]  # type: ignore[index]
        if value in table:
            return None
        for old in list(table):  # in the same order
            table[value if old == key else old] = table.pop(old)
        for release in changed["release"].values():
            for group in release["group"]:
                for kind in ("gpu", "cpu") if way and way[-1] in {"gpu", "cpu"} else ():
                    if kind == way[-1] and kind in group:
                        group[kind] = [value if each == key else each for each in group[kind]]
        return changed
    node: Any = changed
    for step in trail[:-1]:
        node = node[step]
    node[trail[-1]] = value
    return changed
