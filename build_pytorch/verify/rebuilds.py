"""What a change rebuilds, and why: the derivations and the facts of two trees."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from build_pytorch.base import git, process
from build_pytorch.base.console import Screen, counted, grouped, some, visible
from build_pytorch.base.errors import BuildPytorchError, MatrixError, ToolError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.verify import recipe_facts
from build_pytorch.verify.check import Context
from build_pytorch.verify.recipe_facts import Facts

State = Literal["rebuilt", "follows", "new", "removed", "unchanged"]

_SHOWN: Final = 60  #: characters of what a fact was, and of what it is
_MOST_GROUPS: Final = 5  #: groups of packages with the same causes
_FIRST: Final = ("attr.version", "input.", "attr.propagatedBuildInputs", "src.")
"""Facts from which others follow; they are named first."""
_CAUSE: Final = re.compile(r"attr\.(?!name$|pname$|src\b)|(?:input|src|magma|nccl|triton)\.|cuda")
"""Facts that are part of a derivation, but for the name."""


class PackageChange(msgspec.Struct, frozen=True):
    """What happens to one package: with `follows`, its PyTorch is the only cause."""

    package: str
    state: State
    causes: tuple[str, ...] = ()


class Rebuilds(msgspec.Struct, frozen=True):
    """The changes of all compared packages, in matrix order; removed packages come last."""

    against: str
    packages: tuple[PackageChange, ...]

    @property
    def is_none(self) -> bool:
        """Whether nothing has to be built."""
        return {change.state for change in self.packages} <= {"removed", "unchanged"}


def since(matrix: Matrix, ref: str, variants: Sequence[Variant]) -> Rebuilds:
    """Return what differs in variants and their companions between a Git commit and the checkout.

    Raises BuildPytorchError for a name that is no commit, for a matrix that cannot be read, and
    for a recipe of either that does not evaluate.
    """
    chosen = {variant.path for variant in variants}
    packages = [package for package in matrix.packages if package.variant.path in chosen]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            commit = git.run(matrix.root, "rev-list", "-1", "--end-of-options", ref, "--").strip()
            archive = f"{folder}/.archive.tar"
            git.run(matrix.root, "archive", f"--output={archive}", commit)
            process.output_of(["tar", "-xf", archive, "--no-same-owner", "-C", name])
            old = matrix_reader.load(folder)
        except MatrixError as error:
            first = str(error).partition("\n")[0].removeprefix(f"{folder}/")
            raise BuildPytorchError(f"--against {ref}: this version cannot read {first}") from None
        except ToolError as error:
            raise BuildPytorchError(f"--against {error}") from None
        return compare(ref, (old, folder), (matrix, matrix.root), packages)


def compare(
    against: str, before: tuple[Matrix, Path], after: tuple[Matrix, Path], chosen: Iterable[Package]
) -> Rebuilds:
    """Return what differs in the chosen packages of a matrix between two trees with recipes.

    A selection has no removed packages. Raises ToolError if a recipe of either tree does not
    evaluate, or if Nix is missing.
    """
    names = {_name(package) for package in chosen}
    kept = {_name(package) for package in after[0].packages}
    gone = [p for p, _ in Context(*before).present if names == kept and _name(p) not in kept]
    old, new = (_recipes(*tree, names) for tree in (before, after))
    changes = [
        _change(old[name], recipe) if name in old else PackageChange(recipe[0].id, "new")
        for name, recipe in new.items()
    ]
    changes += [PackageChange(package.id, "removed") for package in gone]
    return Rebuilds(against, tuple(changes))


def _name(package: Package) -> tuple[str, str]:
    """Return what names a package in both trees: its id is another one beside a first release."""
    return package.release_name, package.short_id


def _recipes(
    matrix: Matrix, root: Path, names: Collection[tuple[str, str]]
) -> dict[tuple[str, str], tuple[Package, Facts]]:
    """Return the named packages of a tree. Raises ToolError for a recipe without facts."""
    paths = {p.variant.path for p in matrix.packages if _name(p) in names}
    context = Context(matrix, root, [v for v in matrix.variants if v.path in paths])
    given = recipe_facts.facts_of(context)
    for package, _ in context.present:
        if package.path not in given.facts:
            result = given.results.get(package.path)
            why = result.error if result else given.missing or "its PyTorch has no recipe"
            what = f"{package.path}: not comparable, see `invoke verify` in both trees"
            raise ToolError(f"{what}: {why}")
    return {_name(p): (p, given.facts[p.path]) for p, _ in context.present if _name(p) in names}


def _change(old: tuple[Package, Facts], new: tuple[Package, Facts]) -> PackageChange:
    """Return the state of a package and the causes, the root cause first."""
    package = new[0]
    was, now = old[0].variant, package.variant
    causes = []  # the model of nixpkgs does not see the first two
    if was.pin.rev != now.pin.rev:
        causes.append(f"nixpkgs {was.pin.rev[:8]} -> {now.pin.rev[:8]}")
    if was.packages_from != now.packages_from:
        causes.append("files of CUDA packages of another repository")
    if old[1]["drvPath"] == new[1]["drvPath"] and not causes:
        return PackageChange(package.id, "unchanged")
    facts = list(_of_facts(old[1], new[1]))
    if facts and package is now:
        had, has = ([rule.id for rule in it.effects.rules] for it in (was, now))
        causes += [f"rule {name} begins to apply" for name in has if name not in had]
        causes += [f"rule {name} ends to apply" for name in had if name not in has]
    causes += facts
    if not causes and package is not now:
        return PackageChange(package.id, "follows", (now.id,))
    if not causes:
        causes = ["paths of its inputs" if old[0].pname == package.pname else "another name"]
    return PackageChange(package.id, "rebuilt", tuple(causes))


def _of_facts(before: Facts, after: Facts) -> Iterator[str]:
    """Yield one line for each fact that differs: the words that are gone, and those that came."""
    names = [name for name in before.keys() | after.keys() if _CAUSE.match(name)]
    for name in sorted(names, key=lambda name: (not name.startswith(_FIRST), name)):
        if before.get(name) != after.get(name):
            gone, come = recipe_facts.changed_words(before.get(name), after.get(name), _SHOWN)
            said = f"{gone or come} {'removed' if gone else 'added'}"
            if gone and come:
                said = f"{gone} -> {come}"
            elif not (gone or come):
                said = "only order, layout, quotes or comments"
            yield f"{name.removeprefix('attr.')}: {said}"


def show(found: Rebuilds, screen: Screen, *, verbose: bool = False) -> None:
    """Print the packages by cause, at most some causes unless verbose, then the other states."""
    groups = grouped((c.causes, c.package) for c in found.packages if c.state == "rebuilt")
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    shown = largest if verbose else largest[:_MOST_GROUPS]
    for causes, names in shown:
        screen.line(screen.paint(f"{counted(len(names), 'package')} rebuilt", "bold"))
        for cause in causes:
            screen.fold("  because ", visible(cause), indent=10)
        screen.fold("  ", some(names), indent=2)
    if rest := sum(len(names) for _, names in largest[len(shown) :]):
        screen.line(f"{counted(rest, 'package')} rebuilt for other causes; -v lists them")
    if found.is_none:
        screen.fold("", f"Nothing is rebuilt since {visible(found.against)}.")
    states = grouped((change.state, change.package) for change in found.packages)
    for state in get_args(State)[1:]:
        if names := states.get(state, []):
            said = "rebuilt because their PyTorch is" if state == "follows" else state
            which = "" if state == "unchanged" else f": {some(names)}"
            screen.fold("", f"{counted(len(names), 'package')} {said}{which}")
