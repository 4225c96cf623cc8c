"""Generated docs: whole pages, and regions between markers in hand-written pages.

A region is between `<!-- begin generated: NAME ... -->` and `<!-- end generated: NAME -->`. Only
the text between the markers and the digest in the first marker are ever written.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from posixpath import relpath
from typing import Any, Final

import msgspec

from build_pytorch.base import digest, files, paths
from build_pytorch.base.console import counted
from build_pytorch.base.file_plan import Action, Change, Tree, plan_delete, plan_text, unreadable
from build_pytorch.base.versions import numbers, order
from build_pytorch.generate import flox_environments, matrix_reference, recipes, site_page
from build_pytorch.generate.recipes import (
    release_nix,
    render_file,
    render_template,
)
from build_pytorch.matrix.available import AvailableBuild, available_builds
from build_pytorch.matrix.build_features import build_features
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import Rule

_REGION: Final = re.compile(
    r"<!-- begin generated: (?P<name>[a-z]+)[^\n]*-->\n(?P<body>.*?)"
    r"<!-- end generated: (?P=name) -->",
    re.DOTALL,
)
_FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_OF_PROJECT: Final = frozenset({paths.PAGE, paths.RELEASE})
"""Files that are generated only beside a matrix.toml."""
_OF_CLONE: Final = frozenset({paths.MATRIX_DOC, paths.SCHEMA, paths.WHEELS_DOC})
"""Files about this program, which a clone has."""


@functools.lru_cache(maxsize=8)
def render(matrix: Matrix) -> dict[str, str]:
    """Return every generated text except recipes: whole files by path, regions by `PATH#NAME`.

    Raises TemplateError as recipes.render does.
    """
    releases = [_release(matrix, name) for name in matrix.releases]
    read = [build for build in available_builds() if build.features]
    texts = {
        paths.RELEASES_DOC: render_file(matrix.root, "docs/releases.md.j2", releases=releases),
        paths.CHOOSING_DOC: render_file(matrix.root, "docs/choosing.md.j2", builds=_published()),
        paths.WHEELS_DOC: render_file(
            matrix.root, "docs/wheels.md.j2", wheels=read, features=build_features()
        ),
        paths.MATRIX_DOC: matrix_reference.page(matrix.root),
        paths.SCHEMA: matrix_reference.schema(),
        paths.RELEASE: release_nix(matrix, recipes.render(matrix)),
        paths.PAGE: site_page.render(matrix),
        f"{paths.README}#counts": render_template(
            matrix.root, "docs/counts.md.j2", releases=releases
        ),
    }
    for release in releases:
        page = f"{paths.RELEASE_PAGES}/{release['name']}.md"
        texts[page] = render_file(matrix.root, "docs/release.md.j2", release=release)
    return texts


def plan(matrix: Matrix, tree: Tree) -> list[Change]:
    """Plan every generated doc.

    Whole files are created if missing; regions are filled only in pages that have them.
    """
    has_matrix, is_clone = (tree.root / paths.MATRIX).exists(), paths.is_clone(tree.root)
    package = tree.root / paths.SCHEMA.partition("/")[0]
    is_ours = package.is_dir() and not package.is_symlink()
    texts = render(matrix)
    changes = [
        plan_text(tree, path, text)
        for path, text in texts.items()
        if "#" not in path
        if has_matrix or path not in _OF_PROJECT
        if is_clone or path not in _OF_CLONE
        if is_ours or path != paths.SCHEMA
    ]
    if has_matrix:
        changes += flox_environments.plan(matrix, tree)
    unasked = Tree(tree.root, force=True)  # an unedited page can be made again, in Git or not
    for path in files.walk_below(tree.root, paths.RELEASE_PAGES):
        change = None if path in texts else plan_delete(unasked, path, "no such release")
        if change and digest.is_intact((change.old or b"").decode(errors="replace")):
            changes.append(change)
    filled = [_plan_regions(tree, page, _regions(texts, page)) for page in pages(matrix)]
    is_project_of_others = has_matrix and not is_clone
    return changes + [page for page in filled if page.old is not None or not is_project_of_others]


def pages(matrix: Matrix) -> list[str]:
    """Return the hand-written pages about the variants; some contain generated regions."""
    notes = [release.notes for release in matrix.releases.values() if release.notes]
    return [paths.README, paths.ARCHITECTURE_DOC, *notes]


def outside_regions(text: str) -> str:
    """Return a page with generated regions and fenced blocks blanked and all lines kept."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "", match[0])

    return _FENCE.sub(blank, _REGION.sub(blank, text))


def _regions(texts: dict[str, str], page: str) -> dict[str, str]:
    start = f"{page}#"
    return {key.removeprefix(start): text for key, text in texts.items() if key.startswith(start)}


def _plan_regions(tree: Tree, page: str, regions: dict[str, str]) -> Change:
    try:
        old = tree.read(page)
    except OSError as error:
        return unreadable(page, error)
    change = functools.partial(Change, path=page, old=old, new=old)
    if old is None:
        return change(action=Action.SKIPPED, reason="no such page here")
    try:
        text = old.decode()
    except UnicodeDecodeError:
        return change(action=Action.REFUSED, reason="not UTF-8; save it as UTF-8")
    present = {match["name"] for match in _REGION.finditer(text)}
    missing = [f"`<!-- begin generated: {name} -->`" for name in regions if name not in present]
    if missing and not re.search(r"<!-- (begin|end) generated: ", text):
        return change(action=Action.SKIPPED, reason=f"has no markers {', '.join(missing)}")
    if missing:
        return change(action=Action.REFUSED, reason=f"lacks {', '.join(missing)} or its end")
    filled, edited = _fill(text, regions)
    if filled == text:
        return change(action=Action.UNCHANGED, reason="as generated")
    action, reason = Action.REWRITE, "out of date"
    if edited:
        reason = f"edited by hand between the markers of {', '.join(edited)}"
        if tree.force:
            reason = f"forced: {reason}"
        else:
            action, reason = Action.REFUSED, f"{reason}; --force overwrites it"
    return change(action=action, reason=reason, new=filled.encode())


def _fill(text: str, regions: dict[str, str]) -> tuple[str, list[str]]:
    """Return the page with its regions filled, and the names of those edited by hand."""
    edited: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in regions:
            return match[0]
        new = digest.seal(
            f"<!-- begin generated: {name}, from matrix.toml by `invoke phase5`; "
            f"{digest.PLACEHOLDER} -->\n{regions[name].rstrip()}\n<!-- end generated: {name} -->"
        )
        if match[0] != new and digest.has_digest(match[0]) and not digest.is_intact(match[0]):
            edited.append(name)
        return new

    return _REGION.sub(fill, text), edited


def _release(matrix: Matrix, name: str) -> dict[str, Any]:
    """Return the facts of a release for the templates."""
    release = matrix.releases[name]
    variants = matrix.of_release(name)
    cuda = f"on CUDA {release.cuda.version}" if release.cuda else "without CUDA"
    impossible = sum(variant.impossible is not None for variant in variants)
    cpus = list(dict.fromkeys(v.cpu_key for v in variants))
    gpus = list(dict.fromkeys(v.gpu_key for v in variants if v.gpu_key))
    by_capability = sorted(gpus, key=lambda key: numbers(matrix.gpus[key].capability))
    return {
        **msgspec.structs.asdict(release),
        "name": name,
        "pin": matrix.pins[release.nixpkgs.pin],
        "gpus": " to ".join(dict.fromkeys(by_capability[:1] + by_capability[-1:])) or "none",
        "rules": list(_applied_rules(variants)),
        "title": f"PyTorch {release.torch.version} {cuda}, Python {release.python.version}",
        "companions": [
            f"{name} {companion.version}" for name, companion in release.companion.packages.items()
        ],
        "companion_folder": release.companion_folders[0],
        "total": counted(len(variants), "variant"),
        "impossible": impossible,
        "buildable": len(variants) - impossible,
        "cpus": cpus,
        "groups": [
            (group.title, own, list(_impossible(own)))
            for group in release.group
            if (own := [v for v in variants if v.group is group])
        ],
        "notes_link": relpath(release.notes, paths.RELEASE_PAGES) if release.notes else "",
    }


def _impossible(variants: Sequence[Variant]) -> Iterator[tuple[str, str]]:
    """Yield the variants of a group that no machine can run, by reason."""
    for reason in dict.fromkeys(v.impossible for v in variants if v.impossible):
        yield ", ".join(v.short_id for v in variants if v.impossible == reason), reason


def _applied_rules(variants: Sequence[Variant]) -> Iterator[tuple[Rule, str, int]]:
    """Yield the rules that apply to variants, with their effect and the number of variants."""
    found = Counter(rule.id for variant in variants for rule in variant.effects.rules)
    rules = {rule.id: rule for variant in variants for rule in variant.effects.rules}
    for name, number in found.items():
        yield rules[name], rules[name].effect.words, number


def _published() -> list[AvailableBuild]:
    """Return the newest published build of each kind, the newest PyTorch first."""
    newest = {(it.who, it.index, it.platform, it.cuda, it.code): it for it in available_builds()}
    return sorted(newest.values(), key=lambda it: order(it.version), reverse=True)
