"""Hostile values in every string field of matrix.toml: refused, or what they are in every recipe.

The fields come from the JSON schema, and the matrix has a valid value in each. A value is refused
with the path of its field, or all recipes that it changes are evaluated by real Nix: then the
checks of category evaluation pass, and the value is one of the evaluated values. The pages keep
their structure.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from markdown_it import MarkdownIt

from build_pytorch.base import digest, files, paths
from build_pytorch.base.errors import MatrixError
from build_pytorch.generate import docs, recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.field_types import dotted
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix.syntax_tree import without_comments
from build_pytorch.verify import recipe_evaluation, verification
from fuzz import whole_matrix
from fuzz.fields import Trail, at, place_of, replaced, schema_fields, string_places

COUNT = 3000
"""Values of one run, unless another number is given."""

PIECES = [
    *"'\"$\\{}\n\t\r #;/*()<>|&`~[]!@%^=+:,?._-aZ0é中",
    "''", "'''", "${", "$${", "''${", "''$", "''\\", '${builtins.abort "x"}', "${builtins.trace 1 2}",
    "*/", "/*", "//", "..", "../", "/etc/passwd", "-rf", "--help", "$(id)", "`id`", "\0", "\x1b[31m",
    "\x1b]0;t\x07", "\x85", "\x9b", "\u202e", "\u2028", "\ufeff", "\u200b", "\U0001f600", "&lt;", "<b>",
    "</pre>", "</td>", "</table>", "<!--", "-->", "<!-- end generated: counts -->", "__", "**", "~~", "$x$",
    "[a](javascript:b)", "![a](b)", "```", "```mermaid", "%%{init}%%", "| a | b |", "\n\n# a\n\n", "if",
    "let", "rec", "with", "null", "true", "1", "sm_120", "x" * 300, "sha256:" + "a" * 64,
    "sha256-" + "A" * 43 + "=", "v1.0", "main", "https://x/", "\\n", "\\u0000", "</script>",
]  # fmt: skip
VISIBLE = [piece for piece in PIECES if piece.isprintable()]
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
INLINE_TEXT = {"text", "text_special", "softbreak"}
NEEDED_SETTING = "allowUnfree"
"""A setting of nixpkgs without which it refuses torch; it is not replaced."""
NAMES_IN_CODE = re.compile(r"\.config\[\]$|\.pin\.\*\.cuda\.\*key$|\.package_set$")
"""Fields whose values are attribute names in recipes, which no evaluated value contains."""
SELECTS = re.compile(
    r"\.(when|until)\.|\.has\[\]$|\.pin\.\*\.facts\.|\.pin\.\*\.cuda\.\*key$|\.driver$"
)
"""Fields that decide to which variants or machines a row applies: pages have others with another."""
SHOWN = 100
"""Values after which their number is printed."""
VERDICTS = ("refused by its path", "refused elsewhere", "in recipes", "in pages", "in no output")
"""What can happen to a value; `in no output`: it changes neither a recipe nor a page."""


def run(seed: int, count: int) -> dict[str, int]:
    """Try so many values. Raises AssertionError with the value and the field that show a fault."""
    draw = random.Random(seed)
    original = Original(whole_matrix.document())
    fields = list(dict.fromkeys(schema_fields()))
    places = places_by_field(original.document)
    assert sorted(places) == sorted(fields), "whole_matrix.py has every field"
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    evaluated = 0
    open_fields: dict[str, None] = {}  # in which a value was accepted: they are tried more often
    unproved = list(fields)
    for number in range(count):
        if number < len(fields) or draw.random() < 0.3:
            field = fields[number % len(fields)]
        else:
            field = draw.choice(unproved or list(open_fields))
        trail = draw.choice(places[field])
        value = hostile(draw, at(original.document, trail))
        changed = replaced(original.document, trail, value)
        if changed is None:
            continue
        what = f"{field} = {value!r}"
        matrix = parsed(tomlkit.dumps(changed), what)
        if isinstance(matrix, Matrix):
            open_fields[field] = None
            verdict, recipes_evaluated = accepted(original, matrix, field, value)
            evaluated += recipes_evaluated
        else:
            own = dotted(place_of(trail, value))
            verdict = VERDICTS[0 if any(is_about(path, own) for path in matrix) else 1]
        verdicts[field][verdict] += 1
        if number % SHOWN == SHOWN - 1:
            print(f"{number + 1} of {count} values", file=sys.stderr, flush=True)
        if verdict != VERDICTS[1] and field in unproved:
            unproved.remove(field)
    assert count < 2 * len(fields) or not unproved, f"refused for other fields only: {unproved}"
    return summary(verdicts, evaluated)


def summary(verdicts: Mapping[str, Counter[str]], evaluated: int) -> dict[str, int]:
    """Print the verdicts of each field; return their sums."""
    for field in sorted(verdicts):
        shown = ", ".join(f"{verdicts[field][v]} {v}" for v in VERDICTS if verdicts[field][v])
        print(f"  {field:<50} {shown}")
    total = sum(verdicts.values(), Counter[str]())
    return {"fields": len(verdicts), "recipes evaluated": evaluated, **total}


def places_by_field(document: dict[str, Any]) -> dict[str, list[Trail]]:
    """Return where a matrix has each of its fields."""
    places: dict[str, list[Trail]] = {}
    for field, trail in string_places(document):
        if at(document, trail) != NEEDED_SETTING:
            places.setdefault(field, []).append(trail)
    return places


class Original:
    """The matrix in which values are replaced, its recipes and the elements of its pages."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        matrix = matrix_reader.parse(tomlkit.dumps(document))
        self.recipes = recipes.render(matrix)
        self.code = set(map(without_comments, self.recipes.values()))
        self.pages = pages(matrix, self.recipes)
        self.shapes = {page: shape(text) for page, text in self.pages.items()}
        check_recipes(matrix, self.recipes, "no value")


def parsed(text: str, what: str) -> Matrix | list[str]:
    """Return a matrix, or the paths in its refusal; each line of that must name a place."""
    try:
        return matrix_reader.parse(text)
    except MatrixError as error:
        lines = str(error).split("\n")
    found = [
        re.match(r"matrix\.toml:[1-9][0-9]*: (.*?): |and \d+ more errors$", it) for it in lines
    ]
    assert all(found), (what, lines)
    return [match[1] for match in found if match and match[1]]


def is_about(path: str, own: str) -> bool:
    """Return whether one of two paths is the other or a part of it."""
    shorter, longer = sorted((path, own), key=len)
    return longer == shorter or longer.startswith((f"{shorter}.", f"{shorter}["))


def accepted(original: Original, matrix: Matrix, field: str, value: str) -> tuple[str, int]:
    """Check the recipes and pages of a valid matrix. Return the verdict and how many recipes."""
    what = f"{field} = {value!r}"
    texts = recipes.render(matrix)
    shown = pages(matrix, texts)
    check_pages(shown, {} if SELECTS.search(field) else original.shapes, what)
    if texts == original.recipes:
        return VERDICTS[4 if undigested(shown) == undigested(original.pages) else 3], 0
    changed = {path for path, text in texts.items() if text != original.recipes.get(path)}
    facts = check_recipes(matrix, texts, what)
    code = {path for path in changed if without_comments(texts[path]) not in original.code}
    if code and not NAMES_IN_CODE.search(field):
        own = next((p for p in code if any(value in it for it in strings(facts.get(p)))), "")
        more = [
            p for p in code if written(value, texts[p]) > written(value, original.recipes.get(p))
        ]
        assert own or not more, (what, sorted(more))
    return VERDICTS[2], len(texts)


def written(value: str, text: str | None) -> int:
    """Return how often the code of a recipe contains a value; comments do not count."""
    return without_comments(text).count(value) if text else 0


def strings(value: object) -> Iterator[str]:
    """Yield the texts in a value, also keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def check_recipes(matrix: Matrix, texts: Mapping[str, str], what: str) -> dict[str, Any]:
    """Evaluate all recipes with release.nix. Return the facts of each by path."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        written = {**texts, paths.RELEASE: recipes.release_nix(matrix, dict(texts))}
        written[paths.COMPANION_FUNCTION] = files.read_below(
            paths.PROJECT, paths.COMPANION_FUNCTION
        ).decode()
        for release in matrix.releases.values():
            packages = release.cuda.packages_from if release.cuda else None
            if packages and packages.is_copied:
                written |= {
                    f"{packages.folder}/{it}": text for it, text in whole_matrix.COPIES.items()
                }
        for path, text in written.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        # Hand-written files may be anything; here each is the generated recipe.
        result = verification.verify(matrix, root, only=["evaluation"])
        wrong = [(f.path, f.check, f.found, f.expected) for f in result.findings]
        assert not wrong, (what, wrong[:3])
        # No seeds without nix/sharing.nix, which this tree does not have.
        skipped = [o.check.id for o in result.outcomes if o.not_run if o.check.id != "eval-seeds"]
        assert not skipped, (what, skipped)
        found = recipe_evaluation.evaluated(result.context).results
        return {path: result.facts for path, result in found.items()}


def check_pages(shown: Mapping[str, str], shapes: Mapping[str, Counter[str]], what: str) -> None:
    """Every page is intact and has the elements that it had before."""
    for page, text in shown.items():
        assert digest.is_intact(text) or "#" in page, (what, page)
        if page in shapes:
            assert shape(text) == shapes[page], (what, page)


def hostile(draw: random.Random, old: str) -> str:
    """Return pieces, alone or inside the old value, or the old value with another letter or digit.

    Half of the texts with pieces are printable.
    """
    if old and draw.random() < 0.25:
        place = draw.randrange(len(old))
        other = draw.choice("0123456789abcdef" if old[place].isalnum() else "._-/")
        return f"{old[:place]}{other}{old[place + 1 :]}"
    pieces = PIECES if draw.random() < 0.5 else VISIBLE
    text = "".join(draw.choices(pieces, k=draw.choice((1, 1, 2, 3, 6))))
    place = draw.randint(0, len(old))
    return draw.choice((text, old[:place] + text + old[place:]))


def pages(matrix: Matrix, texts: dict[str, str]) -> dict[str, str]:
    """Return all generated Markdown of a matrix; regions have the page and their name as key."""
    rendered = docs.render(matrix, texts)
    found = {page: text for page, text in rendered.items() if ".md" in page}
    for text in found.values():
        assert not re.search(r"<!-- (begin|end) generated[^\n]*-->", text), text
    return found


def shape(text: str) -> Counter[str]:
    """Return how many elements of each kind a page has, except text."""
    counts: Counter[str] = Counter()
    for token in MARKDOWN.parse(text):
        counts[token.type] += 1
        counts.update(c.type for c in token.children or () if c.type not in INLINE_TEXT)
    return counts


def undigested(shown: Mapping[str, str]) -> dict[str, str]:
    """Return pages without their digests."""
    return {page: re.sub(r"sha256:[0-9a-f]{64}", "", text) for page, text in shown.items()}
