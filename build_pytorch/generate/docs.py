"""Docs that state facts of the matrix: whole files, and regions between markers in prose.

A region stands between `<!-- begin generated: NAME ... -->` and `<!-- end generated: NAME -->`.
Only the text between the two, and the digest in the first, is ever written.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Final

import msgspec

from build_pytorch.base import digest, paths
from build_pytorch.base.console import counted
from build_pytorch.base.file_plan import Action, Change, Tree, plan_text, unreadable
from build_pytorch.generate import docs_choosing, recipes
from build_pytorch.matrix.model import Matrix, MatrixFile, Variant

_REGION: Final = re.compile(
    r"<!-- begin generated: (?P<name>[a-z]+)[^\n]*-->\n(?P<body>.*?)"
    r"<!-- end generated: (?P=name) -->",
    re.DOTALL,
)
_FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def render(matrix: Matrix, rendered: dict[str, str]) -> dict[str, str]:
    """Every generated text beside the recipes: whole files by path, regions by `PATH#NAME`.

    `rendered` are the recipes by path. Raises TemplateError as recipes.render does.
    """
    texts = {
        paths.VARIANTS_DOC: digest.seal(_render("variants", releases=_releases(matrix))),
        paths.CHOOSING_DOC: digest.seal(_render("choosing", **docs_choosing.facts(matrix))),
        paths.SCHEMA_DOC: _schema(),
        paths.RELEASE: _release_nix(matrix, rendered),
        f"{paths.README}#counts": _render("counts", releases=_releases(matrix)),
        f"{paths.ARCHITECTURE}#example": _example(matrix, rendered),
    }
    for release in _releases(matrix):
        texts[f"{release['notes']}#variants"] = _render("notes", release=release)
    return texts


def plan(matrix: Matrix, texts: dict[str, str], tree: Tree) -> list[Change]:
    """Plan every generated doc from the texts that `render` gave.

    Whole files are created; regions are filled only where a page has them.
    """
    whole = (paths.VARIANTS_DOC, paths.CHOOSING_DOC)
    changes = [plan_text(tree, page, texts[page]) for page in whole]
    if (tree.root / paths.MATRIX.name).exists():
        changes += [
            plan_text(tree, path, texts[path]) for path in (paths.SCHEMA_DOC, paths.RELEASE)
        ]
    for page in pages(matrix):
        start = f"{page}#"
        regions = {k.removeprefix(start): v for k, v in texts.items() if k.startswith(start)}
        changes.append(_plan_regions(tree, page, regions))
    return changes


def moved(texts: dict[str, str], tree: Tree, page: str, new_page: str) -> list[Change]:
    """Plan to give a page another name: created with its regions filled, the old one deleted."""
    old = tree.read(page)
    if old is None or tree.read(new_page) is not None:
        return []
    start = f"{new_page}#"
    regions = {k.removeprefix(start): v for k, v in texts.items() if k.startswith(start)}
    text, _ = _fill(old.decode("utf-8", errors="replace"), regions)
    return [
        Change(path=new_page, action=Action.CREATE, reason=f"was {page}", new=text.encode()),
        Change(
            path=page,
            action=Action.DELETE,
            reason=f"is {new_page} now",
            old=old,
            is_deletion=True,
        ),
    ]


def pages(matrix: Matrix) -> list[str]:
    """The hand-written pages that hold generated regions."""
    notes = [release.notes for release in matrix.releases.values()]
    return [paths.README, paths.ARCHITECTURE, *notes]


def outside_regions(text: str) -> str:
    """A page with its generated regions and fenced examples blanked; lines stay where they are."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "", match[0])

    return _FENCE.sub(blank, _REGION.sub(blank, text))


def _plan_regions(tree: Tree, page: str, regions: dict[str, str]) -> Change:
    try:
        old = tree.read(page)
    except OSError as error:
        return unreadable(page, error)
    change = functools.partial(Change, path=page, old=old)
    if old is None:
        return change(action=Action.SKIPPED, reason="no such page here")
    text = old.decode("utf-8", errors="replace")
    if text.encode() != old:
        return change(action=Action.REFUSED, reason="not UTF-8; save it as UTF-8")
    present = {match["name"] for match in _REGION.finditer(text)}
    missing = [f"`<!-- begin generated: {name} -->`" for name in regions if name not in present]
    if missing and not re.search(r"<!-- (begin|end) generated: ", text):
        return change(action=Action.SKIPPED, reason=f"has no markers {', '.join(missing)}")
    if missing:
        return change(action=Action.REFUSED, reason=f"lacks {', '.join(missing)} or its end")
    filled, edited = _fill(text, regions)
    new = filled.encode()
    if new == old:
        return change(action=Action.UNCHANGED, reason="as generated")
    if not edited:
        return change(action=Action.REWRITE, reason="out of date", new=new)
    reason = f"edited by hand between the markers of {', '.join(edited)}"
    if tree.force:
        return change(action=Action.REWRITE, reason=f"forced: {reason}", new=new)
    return change(action=Action.REFUSED, reason=f"{reason}; --force overwrites it", new=new)


def _fill(text: str, regions: dict[str, str]) -> tuple[str, list[str]]:
    """The page with its regions as they should be, and the names of those edited by hand."""
    edited: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in regions:
            return match[0]
        new = _region(name, regions[name])
        if match[0] != new and digest.has_digest(match[0]) and not digest.is_intact(match[0]):
            edited.append(name)
        return new

    return _REGION.sub(fill, text), edited


def _region(name: str, body: str) -> str:
    note = f"{name}, from matrix.toml by `invoke phase5`; {digest.PLACEHOLDER}"
    return digest.seal(
        f"<!-- begin generated: {note} -->\n{body.rstrip()}\n<!-- end generated: {name} -->"
    )


def _render(template: str, **values: Any) -> str:
    return recipes.render_template(f"docs/{template}.md.j2", **values)


def _releases(matrix: Matrix) -> list[dict[str, Any]]:
    """What the templates say of each release."""
    return [_release(matrix, name) for name in matrix.releases]


def _release(matrix: Matrix, name: str) -> dict[str, Any]:
    release = matrix.releases[name]
    variants = matrix.of_release(name)
    cuda = f"on CUDA {release.cuda.version}" if release.cuda else "without CUDA"
    by_pair = {(v.gpu_key, v.cpu_key): v for v in variants}
    cpus = list(dict.fromkeys(v.cpu_key for v in variants))
    gpus = list(dict.fromkeys(v.gpu_key for v in variants))
    return {
        "notes": release.notes,
        "title": f"PyTorch {release.torch.version} {cuda}, Python {release.python.version}",
        "torch": release.torch.version,
        "cuda": cuda,
        "python": release.python.version,
        "folder": release.folder,
        "total": counted(len(variants), "variant"),
        "impossible": sum(v.impossible is not None for v in variants),
        "buildable": sum(v.impossible is None for v in variants),
        "cpus": cpus,
        "rows": [
            {
                "label": gpu.upper() if gpu else "none (CPU-only)",
                "products": ", ".join(matrix.gpus[gpu].products) if gpu else "",
                "cells": [_cell(by_pair.get((gpu, cpu))) for cpu in cpus],
            }
            for gpu in gpus
        ],
        "groups": [
            {
                "title": group.title,
                "count": sum(v.group is group for v in variants),
                "variants": [_row(v) for v in variants if v.group is group],
            }
            for group in release.group
        ],
    }


def _cell(variant: Variant | None) -> str:
    if variant is None:
        return ""
    return "no host" if variant.impossible else "yes"


def _row(variant: Variant) -> dict[str, str]:
    return {
        "id": variant.id,
        "package": variant.package,
        "gpu": f"{variant.gpu_label} ({variant.gpu.capability})" if variant.gpu else "none",
        "cpu": variant.cpu.title,
        "platform": variant.cpu.platform,
        "status": variant.status,
        "hardware": recipes.hardware(variant),
    }


def _schema() -> str:
    """The JSON schema of matrix.toml, for editors; generated from the types in model.py."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Generated from build_pytorch/model.py by `invoke phase5`. "
        f"Digest of this file, with zeros in place of it: {digest.PLACEHOLDER}",
        "title": "matrix.toml of build-pytorch",
        **msgspec.json.schema(MatrixFile),
    }
    return digest.seal(json.dumps(document, indent=2) + "\n")


def _release_nix(matrix: Matrix, rendered: dict[str, str]) -> str:
    """release.nix: every recipe, and each distinct import of nixpkgs once."""
    names: dict[str, str] = {}
    variants = []
    for variant in matrix.variants:
        text = recipes.shared_import(rendered[variant.path])
        title = re.sub(r"[^a-z0-9]+", "_", variant.group.title.lower())
        name = names.setdefault(text, f"nixpkgs_{variant.release_name}_{title}")
        variants.append(
            {
                "package": variant.package,
                "path": variant.path,
                "impossible": variant.impossible,
                "nixpkgs": name,
            }
        )
    imports = [{"name": name, "text": text} for text, name in names.items()]
    return digest.seal(
        recipes.render_template("release.nix.j2", imports=imports, variants=variants)
    )


def _example(matrix: Matrix, rendered: dict[str, str]) -> str:
    """The rows of one variant in matrix.toml beside the lines of its recipe that they yield."""
    variant = next((v for v in matrix.variants if v.gpu and not v.impossible), matrix.variants[0])
    tables = [f"[gpu.{variant.gpu_key}]"] if variant.gpu else []
    tables.append(f"[cpu.{variant.cpu_key}]")
    text = rendered[variant.path]
    excerpt = text.partition("\nlet\n")[2].partition("\nin\n")[0]
    return _render(
        "example",
        path=variant.package + ".nix",
        rows="\n\n".join(_table(matrix.text, header) for header in tables),
        excerpt="\n".join(line.removeprefix("  ") for line in excerpt.splitlines()),
    )


def _table(text: str, header: str) -> str:
    """A table of matrix.toml as it is written, to the next blank line."""
    text = text.replace("\r\n", "\n")
    start = text.find(f"\n{header}")
    if start < 0:
        return header  # written in another style, for instance as an inline table
    return text[start + 1 :].partition("\n\n")[0].rstrip()
