"""Rendering: a matrix in, {path: text} out. Pure and deterministic; nothing is written here."""

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
    """The text of every recipe by its path below the root, in the order of the matrix.

    Raises TemplateError where a template is missing, wrong, or leaves a value unquoted.
    """
    return {variant.path: render_one(variant) for variant in matrix.variants}


def render_one(variant: Variant) -> str:
    """The text of one recipe, sealed with its digest."""
    template = "gpu.nix.j2" if variant.gpu else "cpu.nix.j2"
    return digest.seal(render_template(template, variant=variant, hardware=hardware(variant)))


def shared_import(text: str) -> str:
    """What a rendered recipe imports nixpkgs by: the default of its argument nixpkgs_pinned.

    Raises TemplateError where the templates no longer yield one.
    """
    _, found, rest = text.partition(", nixpkgs_pinned ? ")
    if not found:
        raise TemplateError("templates/shared.nix.j2: the recipes have no argument nixpkgs_pinned")
    return rest.partition("\n}:")[0]


def hardware(variant: Variant) -> str:
    """The machines a variant is for, or why there are none."""
    if variant.impossible:
        return variant.impossible
    if variant.gpu is None:
        return f"{variant.cpu.platform} with {', '.join(variant.cpu.cpus)}"
    products = ", ".join(variant.products)
    return f"{products} on {variant.cpu.platform}, where the CPU has {variant.cpu.title}"


def render_template(name: str, **values: Any) -> str:
    """Render a file of templates/. Raises TemplateError with file and line."""
    import jinja2

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
    """Jinja2 set up so that a value reaches a text through a quoting filter or not at all."""
    import jinja2
    from markupsafe import Markup

    def only_quoted(value: object) -> object:
        if isinstance(value, Markup):
            return value
        raise jinja2.TemplateRuntimeError(f"a value without a quoting filter: {value!r}")

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # what makes macros return Markup, so that `only_quoted` knows them
        finalize=only_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.globals["stamp"] = lambda: Markup(digest.PLACEHOLDER)
    environment.filters["nix"] = lambda value: Markup(quoting.literal(value))
    environment.filters["indented"] = lambda text: Markup(quoting.indented(str(text)))
    environment.filters["comment"] = lambda text: Markup(_one_line(str(text)))
    environment.filters["name"] = lambda value: Markup(_name(str(value)))
    environment.filters["path"] = lambda value: Markup(_path(str(value)))
    environment.filters["source"] = Markup  # Nix that a template has yielded
    environment.filters["md"] = lambda value: Markup(_markdown(str(value)))
    environment.filters["code"] = lambda text: Markup(_code(str(text)))
    return environment


def _one_line(text: str) -> str:
    """Text for a comment: a line break would end it and turn the rest into code."""
    return " ".join(text.splitlines())


def _name(text: str) -> str:
    """A name or number that stands in code as it is; anything else is refused."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise TemplateError(f"not a name that can stand in code: {text!r}")
    return text


def _path(text: str) -> str:
    """A relative path that stands in Nix code as it is; anything else is refused."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*", text) or ".." in text:
        raise TemplateError(f"not a path that can stand in code: {text!r}")
    return text


def _markdown(text: str) -> str:
    """Text for a Markdown table cell or paragraph."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", _one_line(text))


def _code(text: str) -> str:
    """Text inside an HTML <pre>, or between backticks, where only HTML's own signs matter."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
