"""Recipes from templates. Rendering is pure and deterministic; nothing is written here."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from build_pytorch.base import digest, files, paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix.field_types import CONTROL
from build_pytorch.matrix.tables import CUDA_PACKAGES
from build_pytorch.nix import quoting

if TYPE_CHECKING:
    from jinja2 import Environment

    from build_pytorch.matrix.model import Matrix, Variant


@functools.lru_cache(maxsize=8)
def render(matrix: Matrix) -> dict[str, str]:
    """Return the text of every recipe, and of the imports of nixpkgs, by path below the root.

    The recipes are in the order of the matrix. Raises BuildPytorchError if a template is missing,
    invalid, or contains an unquoted value.
    """
    template = functools.partial(render_file, matrix.root)
    texts = {}
    for variant in matrix.variants:
        name = "gpu.nix.j2" if variant.gpu else "cpu.nix.j2"
        texts[variant.path] = template(name, variant=variant)
    imports = nixpkgs_imports(matrix, texts)
    path_of = {variant.path: path for path, variants in imports.items() for variant in variants}
    for package in matrix.companions:
        imported = os.path.relpath(path_of[package.variant.path], package.folder)
        values = {"function": paths.COMPANION_FUNCTION, "imported": imported}
        texts[package.path] = template("companion.nix.j2", package=package, **values)
    for path, variants in imports.items():
        place = {"stem": PurePath(path).stem, "folder": str(PurePath(path).parent)}
        texts[path] = template("nixpkgs.nix.j2", variant=variants[0], **place)
    return texts


def nixpkgs_imports(matrix: Matrix, texts: Mapping[str, str]) -> dict[str, list[Variant]]:
    """Return the path of each distinct import of nixpkgs, with the variants that have it.

    `texts` are those of the recipes by path. Raises BuildPytorchError if one has no import.
    """
    found: dict[tuple[str, str], list[Variant]] = {}
    for variant in matrix.variants:
        _, start, rest = texts[variant.path].partition(", nixpkgs_pinned ? ")
        if not start:
            raise BuildPytorchError("templates/shared.nix.j2: no argument nixpkgs_pinned")
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

    `texts` are those of the recipes by path. Raises BuildPytorchError if one has no import.
    """
    imports = nixpkgs_imports(matrix, texts)
    names = {path: f"nixpkgs_{PurePath(path).stem}" for path in imports}
    imported: dict[str, str | None] = {}
    for path, variants in imports.items():
        for variant in variants:
            # A recipe that a person wrote may import another nixpkgs, or in no way.
            release = variant.release
            kept = {f"{release.folder}/{it.file}" for it in release.cleanup if it.action == "keep"}
            imported[variant.attribute] = None if variant.path in kept else names[path]
    return render_file(
        matrix.root,
        "release.nix.j2",
        imports=names,
        variants=[(variant, imported[variant.attribute]) for variant in matrix.variants],
        companions=[(each, imported[each.variant.attribute]) for each in matrix.companions],
    )


def render_file(root: Path, name: str, **values: Any) -> str:
    """Render a template for a whole file, with its digest. Raises BuildPytorchError."""
    return digest.seal(render_template(root, name, **values))


def render_template(root: Path, name: str, **values: Any) -> str:
    """Render a template of a checkout. Raises BuildPytorchError with the line."""
    import jinja2  # 50 ms

    try:
        environment = _environment(root, is_page=name.endswith(".html.j2"))
        return environment.get_template(name).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise BuildPytorchError(f"templates/{error.name}:{error.lineno}: {error.message}") from None
    except jinja2.TemplateError as error:
        raise BuildPytorchError(f"templates/{name}: {error.message}") from None


def template_source(root: Path, name: str) -> str:
    """Return the text of a template of a checkout. Raises BuildPytorchError."""
    try:
        folder = paths.in_use(root, paths.TEMPLATES)
        if not (paths.is_clone(root) or os.path.lexists(folder / name)):
            folder = paths.SHIPPED / paths.TEMPLATES  # a project may have some of its own
        return files.read_below(folder, name).decode()
    except FileNotFoundError:
        raise BuildPytorchError(f"templates/{name}: missing; restore it from Git") from None
    except OSError as error:
        raise BuildPytorchError(f"templates/{name}: cannot be read: {error.strerror}") from None


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

    def compiler_cache_functions() -> Markup:
        text = files.read_named(paths.SHIPPED / paths.COMPILER_CACHE).decode()
        return Markup(quoting.indented_lines(text, 4))

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(functools.partial(template_source, root)),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # makes macros return Markup, which `only_quoted` accepts
        finalize=None if is_page else only_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        optimized=False,  # it takes longer than what it saves
    )
    environment.globals |= {
        "stamp": lambda: Markup(digest.PLACEHOLDER),
        "relative": lambda base, path: os.path.relpath(path, base),
        "cuda_packages": CUDA_PACKAGES,
        "compiler_cache_functions": compiler_cache_functions,
    }
    environment.filters["nix"] = lambda value: Markup(quoting.literal(value))
    for key, quote in _QUOTES.items():
        environment.filters[key] = lambda value, quote=quote: Markup(quote(str(value)))
    return environment


def _only(pattern: str, what: str) -> Callable[[str], str]:
    """Return a filter for a place without escapes, which refuses other texts."""

    def quote(text: str) -> str:
        if re.fullmatch(pattern, text):
            return text
        raise BuildPytorchError(f"not {what}: {text!r}")

    return quote


def _one_line(text: str) -> str:
    return re.sub(f"[{CONTROL}]+", " ", text)


_MARKDOWN: Final = re.compile(r"[\\`*\[\]<>|&~$#]|(?<![^\W_])_|_(?![^\W_])")
"""What CommonMark, GFM (tables, strikethrough) and formulas on GitHub give a meaning to inside a
line. An underscore between letters or digits has none."""

_STEP: Final = r"(?!\.\.(?:/|$))[A-Za-z0-9_.-]+"
_PATH: Final = f"{_STEP}(?:/{_STEP})*"
_file = _only(rf"(?:\./|(?:\.\./)+){_PATH}", "a file for use in code")
_words = _only(r"[A-Za-z0-9_.,+=/:-]+(?: [A-Za-z0-9_.,+=/:-]+)*", "a word for use in shell")

_QUOTES: Final[dict[str, Callable[[str], str]]] = {
    "indented": quoting.indented,
    "attribute": quoting.attribute,
    "comment": _one_line,  # a line break would begin code
    "name": _only(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "a name for use in code"),
    "word": lambda text: f'"{_words(text)}"' if " " in text else _words(text),  # one in shell
    "path": _only(_PATH, "a path for use in code"),  # a relative path in Nix code
    "file": lambda text: _file(text if text.startswith("../") else f"./{text}"),
    "source": str,  # Nix code that a template has produced
    "md": lambda text: _MARKDOWN.sub(r"\\\g<0>", _one_line(text)),  # a part of a line
    "code": _only(f"[^`{CONTROL}]*", "for use between backticks"),  # it has no escapes there
}
"""The filters of templates for text, by name; `nix` takes other values as well."""
