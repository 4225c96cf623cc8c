"""Recipes from templates. Rendering is pure and deterministic; nothing is written here."""

from __future__ import annotations

import functools
import html
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from build_pytorch.base import digest, files, paths
from build_pytorch.base.errors import TemplateError
from build_pytorch.matrix.field_types import CONTROL
from build_pytorch.matrix.source_tables import CUDA_PACKAGES
from build_pytorch.nix import quoting

if TYPE_CHECKING:
    from jinja2 import Environment

    from build_pytorch.matrix.model import Matrix, Variant


@functools.lru_cache(maxsize=8)
def render(matrix: Matrix) -> dict[str, str]:
    """Return the text of every recipe, and of the imports of nixpkgs, by path below the root.

    The recipes are in the order of the matrix. Raises TemplateError if a template is missing,
    invalid, or contains an unquoted value.
    """
    root = matrix.root
    texts = {
        variant.path: render_file(
            root, "gpu.nix.j2" if variant.gpu else "cpu.nix.j2", variant=variant
        )
        for variant in matrix.variants
    }
    imports = nixpkgs_imports(matrix, texts)
    path_of = {variant.path: path for path, variants in imports.items() for variant in variants}
    for package in matrix.companions:
        texts[package.path] = render_file(
            root,
            "companion.nix.j2",
            package=package,
            function=paths.COMPANION_FUNCTION,
            imported=os.path.relpath(path_of[package.variant.path], package.folder),
        )
    for path, variants in imports.items():
        folder, _, stem = path.removesuffix(".nix").rpartition("/")
        values = {"stem": stem, "folder": folder, "variant": variants[0]}
        texts[path] = render_file(root, "nixpkgs.nix.j2", **values)
    return texts


def nixpkgs_imports(matrix: Matrix, texts: Mapping[str, str]) -> dict[str, list[Variant]]:
    """Return the path of each distinct import of nixpkgs, with the variants that have it.

    `texts` are those of the recipes by path. Raises TemplateError if one has no import.
    """
    found: dict[tuple[str, str], list[Variant]] = {}
    for variant in matrix.variants:
        _, start, rest = texts[variant.path].partition(", nixpkgs_pinned ? ")
        if not start:
            raise TemplateError("templates/shared.nix.j2: recipes have no argument nixpkgs_pinned")
        # The text has no name of its own: variants of a place that differ in it get numbers.
        place = f"{variant.release_name}-{variant.kind}-{variant.platform}"
        found.setdefault((place, rest.partition("\n}:")[0]), []).append(variant)
    numbers = Counter[str]()
    paths_of = {}
    for (place, _), variants in found.items():
        numbers[place] += 1
        ending = f"-{numbers[place]}" if numbers[place] > 1 else ""
        paths_of[f"{paths.NIXPKGS_IMPORTS}/{place}{ending}.nix"] = variants
    return paths_of


def release_nix(matrix: Matrix, texts: Mapping[str, str]) -> str:
    """Return release.nix: every variant and companion, and each distinct import of nixpkgs once.

    `texts` are those of the recipes by path. Raises TemplateError if one has no import.
    """
    names: dict[str, str] = {}
    imported: dict[str, str | None] = {}
    for path, variants in nixpkgs_imports(matrix, texts).items():
        names[path] = f"nixpkgs_{PurePath(path).stem}"
        for variant in variants:
            # A recipe that a person wrote may import another nixpkgs, or in no way.
            is_kept = variant.path in variant.release.kept
            imported[variant.attribute] = None if is_kept else names[path]
    return render_file(
        matrix.root,
        "release.nix.j2",
        imports=names,
        variants=[(variant, imported[variant.attribute]) for variant in matrix.variants],
        companions=[(each, imported[each.variant.attribute]) for each in matrix.companions],
    )


def hardware(variant: Variant) -> str:
    """Return the machines that a variant is for, or why there are none."""
    if variant.impossible:
        return variant.impossible
    if variant.gpu is None:
        return f"{variant.cpu.platform} with {', '.join(variant.cpu.cpus)}"
    products = ", ".join(variant.products)
    return f"{products} on {variant.cpu.platform}, where the CPU has {variant.cpu.title}"


def render_file(root: Path, name: str, **values: Any) -> str:
    """Render a template for a whole file, with its digest. Raises TemplateError."""
    return digest.seal(render_template(root, name, **values))


def render_template(root: Path, name: str, **values: Any) -> str:
    """Render a template of a checkout, for those who use it. Raises TemplateError with the line."""
    import jinja2  # 50 ms

    try:
        environment = _environment(root, is_page=name.endswith(".html.j2"))
        return environment.get_template(name).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"templates/{error.name}:{error.lineno}: {error.message}") from None
    except jinja2.TemplateError as error:
        raise TemplateError(f"templates/{name}: {error.message}") from None


def template_source(root: Path, name: str) -> str:
    """Return the text of a template of a checkout. Raises TemplateError."""
    try:
        folder = paths.in_use(root, paths.TEMPLATES)
        if not (paths.is_clone(root) or os.path.lexists(folder / name)):
            folder = paths.SHIPPED / paths.TEMPLATES  # a project may have some of its own
        return files.read_below(folder, name).decode()
    except FileNotFoundError:
        raise TemplateError(f"templates/{name}: missing; restore it from Git") from None
    except OSError as error:
        raise TemplateError(f"templates/{name}: cannot be read: {error.strerror}") from None


@functools.cache
def _environment(root: Path, *, is_page: bool) -> Environment:
    """Return a Jinja2 environment in which every value must go through a quoting filter.

    In a page of HTML, Jinja2 escapes every value itself.
    """
    import jinja2
    from markupsafe import Markup

    def only_quoted(value: object) -> object:
        if isinstance(value, Markup):
            return value
        raise jinja2.TemplateRuntimeError(f"a value without a quoting filter: {value!r}")

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(functools.partial(template_source, root)),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # makes macros return Markup, which `only_quoted` accepts
        finalize=None if is_page else only_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.globals |= {
        "stamp": lambda: Markup(digest.PLACEHOLDER),
        "hardware": hardware,
        "relative": lambda base, path: os.path.relpath(path, base),
        "cuda_packages": CUDA_PACKAGES,
        "compiler_cache_functions": lambda: Markup(
            quoting.indented_lines(
                files.read_named(paths.SHIPPED / paths.COMPILER_CACHE).decode(), 4
            )
        ),
    }
    environment.filters["nix"] = lambda value: Markup(quoting.literal(value))
    for key, quote in _QUOTES.items():
        environment.filters[key] = lambda value, quote=quote: Markup(quote(str(value)))
    return environment


def _one_line(text: str) -> str:
    return re.sub(f"[{CONTROL}]+", " ", text)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise TemplateError(f"not a name for use in code: {text!r}")
    return text


def _word(text: str) -> str:
    """Return words of a shell as one; quoted if there are several. Raises TemplateError."""
    if not re.fullmatch(r"[A-Za-z0-9_.,+=/:-]+( [A-Za-z0-9_.,+=/:-]+)*", text):
        raise TemplateError(f"not a word for use in shell: {text!r}")
    return f'"{text}"' if " " in text else text


def _file(text: str) -> str:
    """Quote the path of a file relative to the file that names it."""
    below = re.sub(r"^(\.\./)+", "", text)
    above = text.removesuffix(below)
    return f"{above or './'}{_path(below)}"


def _path(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*", text) or ".." in text.split("/"):
        raise TemplateError(f"not a path for use in code: {text!r}")
    return text


_MARKDOWN: Final = re.compile(r"[\\`*\[\]<>|&~$#]|(?<![^\W_])_|_(?![^\W_])")
"""What CommonMark, GFM (tables, strikethrough) and formulas on GitHub give a meaning to inside a
line. An underscore between letters or digits has none."""


def as_markdown(text: str) -> str:
    """Return a text as a table cell or a part of a line in Markdown."""
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", _one_line(text))


def _code(text: str) -> str:
    if re.search(f"[`{CONTROL}]", text):  # Markdown has no escapes there
        raise TemplateError(f"not for use between backticks: {text!r}")
    return text


def _pre(text: str) -> str:
    # In Markdown a blank line ends the HTML, and what follows is Markdown.
    lines = re.sub(r"\r\n?", "\n", html.escape(text, quote=False))
    return re.sub(r"\n([ \t]*)(?=\n)", r"&#10;\1", lines)


_QUOTES: Final[dict[str, Callable[[str], str]]] = {
    "indented": quoting.indented,
    "attribute": quoting.attribute,
    "comment": _one_line,  # a line break would begin code
    "name": _name,  # a name or number in code
    "word": _word,  # one argument in shell
    "path": _path,  # a relative path in Nix code
    "file": _file,  # the same of another folder, with ../ or ./ before it
    "source": str,  # Nix code that a template has produced
    "md": as_markdown,  # a table cell, or part of a line
    "code": _code,  # text in backticks, or in a fenced block
    "pre": _pre,  # HTML <pre> in Markdown
}
"""The filters of templates for text, by name; `nix` takes other values as well."""
