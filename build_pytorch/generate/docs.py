"""Generated docs: whole pages, and the numbers between two markers in the README."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from posixpath import relpath
from typing import Any, Final

import msgspec

from build_pytorch.base import digest, paths
from build_pytorch.base.console import counted, grouped
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.generate import flox_environments, matrix_reference, recipes, site_page
from build_pytorch.generate.recipes import release_nix, render_file, render_template
from build_pytorch.generate.text_plan import Tree, plan_text, unreadable
from build_pytorch.matrix.available import available_builds
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import Rule, companion_folder_of
from build_pytorch.matrix.versions import order

COUNTS: Final = f"{paths.README}#counts"
"""The key of the text between the markers of the README."""
_REGION: Final = re.compile(
    r"<!-- begin generated: counts[^\n]*-->\n.*?<!-- end generated: counts -->", re.DOTALL
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
            "docs/releases.md.j2", releases=releases, rules=_rules(matrix)
        ),
        "docs/reference/choosing.md": page("docs/choosing.md.j2", builds=_published()),
        "docs/reference/matrix.md": matrix_reference.page(matrix.root),
        paths.SCHEMA: matrix_reference.schema(),
        paths.RELEASE: release_nix(matrix, recipes.render(matrix)),
        paths.PAGE: site_page.render(matrix),
        COUNTS: render_template(matrix.root, "docs/counts.md.j2", releases=releases),
    }


def plan(matrix: Matrix, tree: Tree) -> list[Change]:
    """Plan every generated doc; missing ones are created, but for the README."""
    has_matrix, is_clone = (tree.root / paths.MATRIX).exists(), paths.is_clone(tree.root)
    package, texts, left_out = tree.root / paths.SCHEMA.partition("/")[0], render(matrix), {COUNTS}
    if not has_matrix:
        left_out |= {paths.PAGE, paths.RELEASE}
    if not is_clone:
        left_out |= {"docs/reference/matrix.md", paths.SCHEMA}
    if package.is_symlink() or not package.is_dir():  # not a clone's own package
        left_out.add(paths.SCHEMA)
    changes = [plan_text(tree, path, it) for path, it in texts.items() if path not in left_out]
    if has_matrix:
        changes += flox_environments.plan(matrix, tree)
    readme = _plan_readme(tree, texts[COUNTS])
    if readme.old is not None or is_clone or not has_matrix:
        changes.append(readme)
    return changes


def _plan_readme(tree: Tree, counts: str) -> Change:
    """Plan the README: only the text between the markers and their digest are ever written."""
    path = paths.README
    try:
        old = tree.read(path)
    except OSError as error:
        return unreadable(path, error)
    text = (old or b"").decode(errors="surrogateescape")
    change = functools.partial(Change, path=path, old=old)
    region = _REGION.search(text)
    if region is None:
        marker = "`<!-- begin generated: counts -->`"
        if re.search(r"<!-- (begin|end) generated: ", text):
            return change(action=Action.REFUSED, reason=f"lacks {marker} or its end", new=old)
        reason = "no such page here" if old is None else f"has no marker {marker}"
        return change(action=Action.KEPT, reason=reason, new=old)
    filled = digest.seal(
        f"<!-- begin generated: counts, from matrix.toml by `invoke phase5`; {digest.PLACEHOLDER} "
        f"-->\n{counts.rstrip()}\n<!-- end generated: counts -->"
    )
    new = (text[: region.start()] + filled + text[region.end() :]).encode(errors="surrogateescape")
    if new == old:
        return change(action=Action.UNCHANGED, reason="as generated", new=new)
    action, reason = Action.REWRITE, "out of date"
    if digest.is_intact(region[0]) is False:
        reason = "edited by hand between the markers of counts"
        if not tree.force:
            action, reason = Action.REFUSED, f"{reason}; --force overwrites it"
    return change(action=action, reason=reason, new=new)


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


def _rules(matrix: Matrix) -> Iterator[tuple[Rule, str]]:
    """Yield each rule that applies, with the number of variants of each release."""
    applied = [(rule.id, v.release_name) for v in matrix.variants for rule in v.effects.rules]
    rules = {rule.id: rule for variant in matrix.variants for rule in variant.effects.rules}
    for name, releases in grouped(applied).items():
        yield rules[name], ", ".join(f"{n} of {of}" for of, n in Counter(releases).items())


def _published() -> dict[tuple[str, str, str], list[str]]:
    """Return who publishes a PyTorch for what, by version, CUDA and code; the newest first.

    Of each kind the newest version.
    """
    newest = {(it.who, it.index, it.platform, it.cuda, it.code): it for it in available_builds()}
    rows = []
    for it in sorted(newest.values(), key=lambda it: order(it.version), reverse=True):
        code = " ".join(it.code) + (f" PTX {' '.join(it.ptx)}" if it.ptx else "")
        who = filter(None, (it.who, it.index, it.platform, it.unconfirmed and "?"))
        rows.append(((it.version or "unknown", it.cuda, code), " ".join(who)))
    return grouped(rows)
