"""The frame of HTML pages: one file with its style and script, and nothing that it loads.

A page works from a file and from any host. Jinja2 escapes every value. The Content-Security-Policy
allows exactly the style and the script of the page, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from build_pytorch.generate.recipes import render_template, template_source

if TYPE_CHECKING:
    from markupsafe import Markup


class MapCell(Struct, frozen=True, kw_only=True):
    """One cell of a map of a release."""

    state: str  #: decides the colour
    name: str  #: id of the variant
    text: str  #: what is shown for the cell that has the focus
    link: str  #: where the cell leads
    signs: tuple[tuple[str, str], ...]  #: states, each with its sign; the first one is `state`


class ReleaseMap(Struct, frozen=True, kw_only=True):
    """The grid of a release: GPU architectures by CPU ISAs."""

    name: str
    title: str
    columns: dict[str, str]  #: title of each ISA by its key
    rows: tuple[tuple[str, str, tuple[MapCell | None, ...]], ...]  #: GPU, its products, the cells


def page(root: Path, name: str, *libraries: str, **values: Any) -> str:
    """Render NAME.html.j2 of templates/pages/ with NAME.css and NAME.js, and what all pages share.

    `libraries` are scripts that come before NAME.js. Raises TemplateError as `render_template`
    does.
    """
    from markupsafe import Markup  # slow to import

    styles, scripts = ("style.css", "map.css", f"{name}.css"), ("map.js", *libraries, f"{name}.js")
    parts = {
        "style": "".join(template_source(root, f"pages/{file}") for file in styles),
        "script": "".join(template_source(root, f"pages/{file}") for file in scripts),
    }
    hashes = {part: _hash(text) for part, text in parts.items()}
    policy = (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    ours: dict[str, str] = {part: Markup(text) for part, text in parts.items()}
    return render_template(root, f"pages/{name}.html.j2", **values, **ours, policy=policy)


def _hash(text: str) -> str:
    """Return the source expression of an inline style or script (CSP Level 3, 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def data(value: Any) -> Markup:
    """Return JSON for the inside of a `script` element of type application/json.

    No character of it can end the element or begin another one.
    """
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
