"""Generated docs: whole pages, and the numbers between two markers in the README."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from posixpath import relpath
from typing import Any, Final

import msgspec

from build_pytorch.base import paths
from build_pytorch.base.console import counted, grouped
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.generate import flox_environments, matrix_reference, recipes, site_page
from build_pytorch.generate.recipes import release_nix, render_file, render_template
from build_pytorch.generate.text_plan import Tree, plan_text, unreadable
from build_pytorch.matrix.available import available_builds
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import Rule, companion_folder_of
from build_pytorch.matrix.versions import order

README: Final = "README.md"
SCHEMA: Final = "build_pytorch/matrix/matrix.schema.json"
PAGE: Final = "docs/site/index.html"
COUNTS: Final = f"{README}#counts"
"""The key of the text between the markers of the README."""
_REGION: Final = re.compile(
    r"(?s)(<!-- begin generated: counts[^\n]*-->\n).*?(\n<!-- end generated: counts -->)"
)


@functools.lru_cache(maxsize=8)
def render(matrix: Matrix) -> dict[str, str]:
    """Return every generated text except recipes by path; that of the README by COUNTS.

    Raises BuildPytorchError as recipes.render does.
    """
    page = functools.partial(render_file, matrix.root)
    releases = [_release(matrix, name) for name in matrix.releases]
    return {
        "docs/reference/releases.md": page(
            "docs/releases.md.j2", releases=releases, pins=_doubts(matrix), rules=_rules(matrix)
        ),
        "docs/reference/choosing.md": page("docs/choosing.md.j2", builds=_published()),
        "docs/reference/matrix.md": matrix_reference.page(matrix.root),
        SCHEMA: matrix_reference.schema(),
        paths.RELEASE: release_nix(matrix, recipes.render(matrix)),
        PAGE: site_page.render(matrix),
        COUNTS: render_template(matrix.root, "docs/counts.md.j2", releases=releases),
    }


def plan(matrix: Matrix, tree: Tree) -> list[Change]:
    """Plan every generated doc; missing ones are created, but for the README."""
    is_clone, package = paths.is_clone(tree.root), tree.root / SCHEMA.partition("/")[0]
    texts, left_out = render(matrix), {COUNTS}
    if not is_clone:
        left_out |= {"docs/reference/matrix.md", SCHEMA}
    if package.is_symlink() or not package.is_dir():  # not a clone's own package
        left_out.add(SCHEMA)
    changes = [plan_text(tree, path, it) for path, it in texts.items() if path not in left_out]
    changes += flox_environments.plan(matrix, tree)
    readme = _plan_readme(tree, texts[COUNTS])
    if readme.old is not None or is_clone:
        changes.append(readme)
    return changes


def _plan_readme(tree: Tree, counts: str) -> Change:
    """Plan the README, of which only the text between the markers is ever written."""
    path = README
    try:
        old = tree.read(path)
    except OSError as error:
        return unreadable(path, error)
    text = (old or b"").decode(errors="surrogateescape")
    filled = _REGION.sub(lambda found: f"{found[1]}{counts.rstrip()}{found[2]}", text, count=1)
    new = filled.encode(errors="surrogateescape")
    action, reason = Action.REWRITE, "out of date"
    if not _REGION.search(text):
        is_half = "generated: counts" in text
        action, reason = Action.KEPT, "has no markers of counts"
        if is_half:
            action, reason = Action.REFUSED, "lacks a marker of counts, the begin or the end"
    elif new == old:
        action, reason = Action.UNCHANGED, "as generated"
    return Change(path=path, action=action, reason=reason, old=old, new=new)


def _release(matrix: Matrix, name: str) -> dict[str, Any]:
    """Return the facts of a release for the templates."""
    release = matrix.releases[name]
    variants = matrix.of_release(name)
    cuda = f"on CUDA {release.cuda.version}" if release.cuda else "without CUDA"
    companions = release.companions.items()
    return {
        **msgspec.structs.asdict(release),
        "name": name,
        "pin": matrix.pins[release.nixpkgs.pin],
        "title": f"PyTorch {release.torch.version} {cuda}, Python {release.python.version}",
        "companions": [f"{package} {companion.version}" for package, companion in companions],
        "companion_folder": companion_folder_of(release.folder),
        "total": counted(len(variants), "variant"),
        "impossible": sum(variant.impossible is not None for variant in variants),
        "groups": grouped((variant.group.title, variant) for variant in variants),
        "notes_link": relpath(release.notes, "docs/reference") if release.notes else "",
    }


def _doubts(matrix: Matrix) -> dict[str, list[str]]:
    """Return the pins of which something is not confirmed, by what that is."""
    tables = [(key, table) for key, pin in matrix.pins.items() for table in (pin, pin.facts)]
    return grouped((it.unconfirmed, key) for key, it in tables if it and it.unconfirmed)


def _rules(matrix: Matrix) -> Iterator[tuple[Rule, list[str]]]:
    """Yield each rule that applies, with the releases in which it does."""
    applied = [(rule.id, v.release_name) for v in matrix.variants for rule in v.effects.rules]
    rules = {rule.id: rule for variant in matrix.variants for rule in variant.effects.rules}
    for name, releases in grouped(applied).items():
        yield rules[name], list(dict.fromkeys(releases))


def _published() -> dict[tuple[str, str], list[str]]:
    """Return the platforms for which something is published, by its code and who publishes it.

    Of each kind the newest version; the newest first.
    """
    newest = {(it.who, it.index, it.platform, it.cuda, it.code): it for it in available_builds()}
    builds = []
    for it in sorted(newest.values(), key=lambda it: order(it.version), reverse=True):
        code = " ".join(it.code) + (f" PTX {' '.join(it.ptx)}" if it.ptx else "")
        version = f"{it.version or 'unknown'}{it.cuda and f' on {it.cuda}'}"
        who = f"{it.index or it.who}{'?' if it.unconfirmed else ''}"
        builds.append(((it.platform, code or "CPU"), (version, who)))
    kinds = {
        kind: ", ".join(f"{version} {' '.join(who)}" for version, who in grouped(held).items())
        for kind, held in grouped(builds).items()
    }
    places = grouped(((platform, who), code) for (platform, code), who in kinds.items()).items()
    return grouped(((" or ".join(codes), who), platform) for (platform, who), codes in places)
