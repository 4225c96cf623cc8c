"""Recipes from templates. Rendering is pure and deterministic; nothing is written here."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from build_pytorch.base import digest, files, paths
from build_pytorch.base.errors import TemplateError
from build_pytorch.nix import quoting

if TYPE_CHECKING:
    from jinja2 import Environment

    from build_pytorch.matrix.model import Matrix, Variant


def render(matrix: Matrix) -> dict[str, str]:
    """Return the text of every recipe by its path below the root, in the order of the matrix.

    Raises TemplateError if a template is missing, invalid, or contains an unquoted value.
    """
    return {variant.path: render_one(variant) for variant in matrix.variants}


def render_one(variant: Variant) -> str:
    """Return the text of one recipe."""
    return render_file("gpu.nix.j2" if variant.gpu else "cpu.nix.j2", variant=variant)


def release_nix(matrix: Matrix, rendered: dict[str, str]) -> str:
    """Return release.nix: every variant, and each distinct import of nixpkgs once.

    `rendered` are the recipes by path. Raises TemplateError if one has no import.
    """
    from build_pytorch.nix.nix_evaluation import shared_import  # not needed for stored texts

    names: dict[str, str] = {}
    variants = []
    for variant in matrix.variants:
        text = shared_import(rendered[variant.path])
        if text is None:
            raise TemplateError(
                "templates/shared.nix.j2: the recipes have no argument nixpkgs_pinned"
            )
        title = re.sub(r"[^a-z0-9]+", "_", variant.group.title.lower())
        variants.append(
            (variant, names.setdefault(text, f"nixpkgs_{variant.release_name}_{title}"))
        )
    return render_file("release.nix.j2", imports=names, variants=variants)


def hardware(variant: Variant) -> str:
    """Return the machines that a variant is for, or why there are none."""
    if variant.impossible:
        return variant.impossible
    if variant.gpu is None:
        return f"{variant.cpu.platform} with {', '.join(variant.cpu.cpus)}"
    products = ", ".join(variant.products)
    return f"{products} on {variant.cpu.platform}, where the CPU has {variant.cpu.title}"


def render_file(name: str, **values: Any) -> str:
    """Render a template for a whole file, with its digest. Raises TemplateError."""
    return digest.seal(render_template(name, **values))


def render_template(name: str, **values: Any) -> str:
    """Render a file of templates/. Raises TemplateError with file and line."""
    import jinja2  # takes 50 ms to import, and is not needed for stored texts

    try:
        return _environment().get_template(name).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"templates/{error.name}:{error.lineno}: {error.message}") from None
    except jinja2.TemplateNotFound as error:
        raise TemplateError(f"templates/{error.name}: {_absence(str(error.name))}") from None
    except jinja2.TemplateError as error:
        raise TemplateError(f"templates/{name}: {error.message}") from None


def _absence(name: str) -> str:
    """Return why the template engine does not find a template: it is missing or unreadable."""
    try:
        files.read_regular_file(paths.TEMPLATES / name)
    except FileNotFoundError:
        return "missing; restore it from Git"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "cannot be read"


@functools.cache
def _environment() -> Environment:
    """Return a Jinja2 environment in which every value must go through a quoting filter."""
    import jinja2
    from markupsafe import Markup

    def only_quoted(value: object) -> object:
        if isinstance(value, Markup):
            return value
        raise jinja2.TemplateRuntimeError(f"a value without a quoting filter: {value!r}")

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # makes macros return Markup, which `only_quoted` accepts
        finalize=only_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.globals |= {"stamp": lambda: Markup(digest.PLACEHOLDER), "hardware": hardware}
    filters = {
        "nix": quoting.literal,
        "indented": lambda text: quoting.indented(str(text)),
        "comment": lambda text: _one_line(str(text)),
        "name": lambda value: _name(str(value)),
        "path": lambda value: _path(str(value)),
        "source": str,  # Nix code that a template has produced
        "md": lambda value: _markdown(str(value)),
        "code": lambda text: _code(str(text)),
    }
    for key, quote in filters.items():
        environment.filters[key] = lambda value, quote=quote: Markup(quote(value))
    return environment


def _one_line(text: str) -> str:
    """Quote text for a comment, in which a line break would begin code."""
    return " ".join(text.splitlines())


def _name(text: str) -> str:
    """Return a name or number for use in code. Raises TemplateError for anything else."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise TemplateError(f"not a name that can stand in code: {text!r}")
    return text


def _path(text: str) -> str:
    """Return a relative path for use in Nix code. Raises TemplateError for anything else."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*", text) or ".." in text:
        raise TemplateError(f"not a path that can stand in code: {text!r}")
    return text


def _markdown(text: str) -> str:
    """Quote text for a Markdown table cell or paragraph."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", _one_line(text))


def _code(text: str) -> str:
    """Quote text for an HTML <pre> or for backticks, where only the characters of HTML count."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
