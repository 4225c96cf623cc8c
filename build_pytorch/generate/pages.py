"""The frame of HTML pages: one file with its style and script, and nothing that it loads.

A page works from a file and from any host. Jinja2 escapes every value. The Content-Security-Policy
allows exactly the style and the script of the page, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final

from build_pytorch.generate.recipes import render_template, template_source

GENERATOR: Final = "build-pytorch"
"""The content of the `generator` meta element, by which a page of ours is recognised."""

_STYLE: Final = "pages/style.css"


def page(name: str, script: str, **values: Any) -> str:
    """Render the page `name` of templates/pages/ with the script of that name beside it.

    Raises TemplateError as `render_template` does.
    """
    from markupsafe import Markup  # slow to import

    parts = {"style": template_source(_STYLE), "script": template_source(f"pages/{script}")}
    hashes = {part: _hash(text) for part, text in parts.items()}
    policy = (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    ours = {part: Markup(text) for part, text in parts.items()}
    return render_template(f"pages/{name}", **values, **ours, policy=policy, generator=GENERATOR)


def _hash(text: str) -> str:
    """Return the source expression of an inline style or script (CSP Level 3, 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
