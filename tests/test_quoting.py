"""Quoting: any text evaluates to itself in real Nix, and shows as itself in Markdown."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PROJECT, needs_nix
from markdown_it import MarkdownIt
from markdown_it.token import Token

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.generate import recipes
from build_pytorch.nix import quoting
from build_pytorch.nix.quoting import without_comments

PIECES = [
    *"'$\\{}\"\n\t\r#;/*() aZ9-_.<>|&`~[]!@%^=+:,?",
    "''", "'''", "${", "$${", "''${", "''$", "''\\", "\\${", "\r\n", "*/", "/*", "//", "é", "中",
    '${builtins.abort "x"}', "__", "**", "~~", "&lt;", "<!--", "-->", "\x01", "\x7f", "$x$",
]  # fmt: skip


def drawn(count: int) -> list[str]:
    """Every piece, every three characters of those that strings of Nix treat, random sequences."""
    source = random.Random(0)
    hard = ["'", "$", "{", "\\", '"', "\n", "\r", "\t", " ", "a"]
    texts = [*PIECES, *(a + b + c for a in hard for b in hard for c in hard)]
    while len(texts) < count:
        texts.append("".join(source.choices(PIECES, k=source.randint(1, 12))))
    return texts


TEXTS = drawn(4000)


def evaluated(items: list[str], tmp_path: Path) -> list[object]:
    """The values of Nix expressions, from one process."""
    file = tmp_path / "list.nix"
    file.write_text(f"[ {' '.join(f'({item})' for item in items)} ]", newline="")
    argv = ["nix-instantiate", "--eval", "--strict", "--json", str(file)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[object] = json.loads(done.stdout)
    return found


@needs_nix
def test_values_evaluate_to_themselves(tmp_path: Path) -> None:
    """Among them are the names of attributes."""
    words = ["if", "rec", "or", "a-b", "a'", "_", "x.y", ""]
    names = dict.fromkeys([*TEXTS, *words], "x")
    values: list[quoting.Value] = [*TEXTS, [], True, False, None, 7, [["a", 1], ["''"]], {}, names]
    assert evaluated([quoting.literal(value) for value in values], tmp_path) == values
    assert quoting.attribute("cudaPackages_13") == "cudaPackages_13"


@needs_nix
def test_a_text_evaluates_to_itself_anywhere_in_an_indented_string(tmp_path: Path) -> None:
    """Nix removes the indentation of the lines around it; what that yields, a word shows.

    Texts beside each other stay apart.
    """
    source = random.Random(1)
    rows = [source.choices(TEXTS, k=3) for _ in range(2000)]
    blocks = [f"''{''.join(map(quoting.indented, row))}''" for row in rows]
    assert evaluated(blocks, tmp_path) == ["".join(row) for row in rows]
    around = [
        ("", ""),
        ("\n    ", "\n  "),
        ("x: ", " y"),
        ("\n      a\n    ", "\n      "),
        ("'", "'."),
    ]
    for before, after in around:
        blocks = [f"''{before}{quoting.indented(text)}{after}''" for text in ["word", *TEXTS]]
        first, *found = evaluated(blocks, tmp_path)
        assert found == [str(first).replace("word", text) for text in TEXTS]


def test_plain_text_stays_readable() -> None:
    assert quoting.indented("AVX-512 (-mavx512f), C:\\x") == "AVX-512 (-mavx512f), C:\\x"
    assert quoting.indented("Intel's") == r"""${"Intel\'s"}"""


def test_no_text_looks_like_the_end_of_its_string() -> None:
    for text in TEXTS:
        code = f"x = ''\n  {quoting.indented(text)}\n''; y = {quoting.literal(text)}; # comment"
        assert without_comments(code) == code.removesuffix("# comment") + " " * 9


# --- Markdown ---

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SPACES = dict.fromkeys([*range(32), *range(127, 160)], " ")


def shown(tokens: list[Token]) -> str:
    """The text that a reader sees, with everything that is not text as a word in parentheses."""
    texts = ("text", "text_special")
    return "".join(t.content if t.type in texts else f"({t.type})" for t in tokens)


def cells(markdown: str) -> Iterator[str]:
    tokens = MARKDOWN.parse(markdown)
    for token, inline in itertools.pairwise(tokens):
        if token.type == "td_open":
            yield shown(inline.children or [])


def quoted(text: str, name: str) -> str:
    """A text as a filter of the templates quotes it."""
    environment = recipes._environment(PROJECT, is_page=False)  # noqa: SLF001 - the filters are in it
    return str(environment.filters[name](text))


def test_a_text_shows_as_itself_in_a_cell_of_a_table() -> None:
    rows = [f"| x{quoted(text, 'md')}x | b |" for text in TEXTS]
    found = list(cells("\n".join(["| a | b |", "|---|---|", *rows])))
    assert found[1::2] == ["b"] * len(TEXTS)
    for text, cell in zip(TEXTS, found[::2], strict=True):
        assert cell.split() == f"x{text.translate(SPACES)}x".split()


REFUSED = {
    "name": ("a b", '"', "a\n", "-rf", ""),
    "path": ("../x", "/etc", "a/../b", "a//b", "a b", "a\n"),
    "file": ("../a/../b",),
    "word": ("$x",),
    "code": ("a`b", "a\nb"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_place_without_escapes_refuses_what_it_cannot_hold(name: str) -> None:
    for text in REFUSED[name]:
        with pytest.raises(BuildPytorchError, match="not"):
            quoted(text, name)
