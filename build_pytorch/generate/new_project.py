"""The files of a new project, whose matrix has one variant."""

from __future__ import annotations

import json
import re
from typing import Final

from build_pytorch.base import files, paths
from build_pytorch.base.versions import own_version
from build_pytorch.generate.recipes import render_template
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.matrix_reader import TomlLines, own_values
from build_pytorch.matrix.model import Matrix, Variant

WORKFLOW: Final = ".github/workflows/build.yml"
_EXAMPLE: Final = "examples/github-build.yml"


def project_files(matrix: Matrix, variant: Variant, *, ci: bool) -> dict[str, str]:
    """Return the text of each file by its path: one variant of a matrix, with what it needs.

    Raises TemplateError.
    """
    texts = {
        paths.MATRIX: _matrix(matrix, variant),
        ".gitignore": render_template(paths.SHIPPED, "init/gitignore.j2"),
    }
    texts |= {WORKFLOW: _workflow()} if ci else {}
    return {path: paths.named(text, paths.SCRIPT) for path, text in texts.items()}


def _matrix(matrix: Matrix, variant: Variant) -> str:
    release, lines = variant.release_name, TomlLines(matrix.text)
    own = own_values(matrix.text, release)
    effects = variant.effects.rules
    patches = dict.fromkeys(patch for rule in effects for patch in rule.effect.patches)

    def text(*trail: str | int) -> str:
        start, end = lines.span(trail) or (0, 0)
        return matrix.text[start:end]

    parts = [part for rule in effects for part in (rule.when, rule.until) if part]
    named = [gpu for part in parts for gpu in part.gpu]
    gpus = dict.fromkeys([variant.gpu_key, *named] if variant.gpu_key else named)
    hardware = [*(("gpu", gpu) for gpu in gpus), ("cpu", variant.cpu_key)]
    trails: list[Trail] = [("rule", n) for n, rule in enumerate(matrix.rules) if rule in effects]
    trails += [("patch", patch) for patch in patches]
    return render_template(
        paths.SHIPPED,
        "init/matrix.toml.j2",
        reference=f"{matrix.repository}/blob/main/{paths.MATRIX_DOC}",
        release=release,
        id=variant.short_id,
        pin=text("pin", variant.release.nixpkgs.pin),
        tables=[
            text("release", release, key)
            for key, value in own.items()
            if isinstance(value, dict) and key != "companion"
        ],
        group={
            key: json.dumps(getattr(variant.group, key)) for key in ("title", "kind", "platform")
        },
        gpu=variant.gpu_key and json.dumps(variant.gpu_key),
        cpu=json.dumps(variant.cpu_key),
        hardware=[text(*trail) for trail in hardware],
        rules=[text(*trail) for trail in trails],
    )


def _workflow() -> str:
    """Return the example of builds in CI as a project uses it that installs this package."""
    text = files.read_named(paths.SHIPPED / _EXAMPLE).decode()
    text = re.sub(r"(?m)^.* --require-hashes .*\n", "", text)
    text = re.sub(r"pip install --no-deps .*", f"pip install build-pytorch=={own_version()}", text)
    return text.replace("/invoke ", f"/{paths.SCRIPT} ")
