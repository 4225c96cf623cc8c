"""What a change rebuilds, and why: the derivations and the facts of two trees."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from build_pytorch.base import git
from build_pytorch.base.console import Screen, counted, grouped, shortened, some, visible
from build_pytorch.base.errors import BuildPytorchError, MatrixError, ToolError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.nix import evaluation
from build_pytorch.verify import recipe_facts
from build_pytorch.verify.context import Context
from build_pytorch.verify.recipe_facts import Facts

State = Literal["rebuilt", "follows", "new", "removed", "text only", "unchanged"]

_SHOWN: Final = 60  #: characters of a value
_MOST_WORDS: Final = 3  #: changed words of one fact
_MOST_GROUPS: Final = 5  #: groups of packages with the same causes
_FIRST: Final = ("input.", "attr.propagatedBuildInputs", "src.")
"""Facts from which others follow; they are named first."""
_CAUSE: Final = re.compile(
    r"attr\.(?!name$|pname$|version$|src\b)|(?:input|src|magma|nccl|triton)\.|cuda"
)
"""Facts that are part of a derivation, but for the name."""
_COMMENT: Final = re.compile(r"(?m)^\s*#.*$")


class PackageChange(msgspec.Struct, frozen=True):
    """What happens to one package: with `follows`, its PyTorch is the only cause.

    `text only`: the recipe has another text, and Nix would build the same.
    """

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
        return not {change.state for change in self.packages} & {"rebuilt", "follows", "new"}


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
            git.extract(matrix.root, ref, folder)
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
    if not evaluation.is_installed():
        raise ToolError("nix-instantiate not found; install Nix")
    wanted = {_key(package) for package in chosen}
    (old, old_facts), (new, new_facts) = (_tree(*tree, wanted) for tree in (before, after))
    changes = []
    for key, (package, text) in new.items():
        if key not in old:
            changes.append(PackageChange(package.id, "new"))
            continue
        own, own_text = old[key]
        facts = old_facts[own.path], new_facts[package.path]
        changes.append(_change(own, package, *facts, is_text=text != own_text))
    if len(wanted) == len(after[0].packages):
        kept = {_key(package) for package in after[0].packages}
        gone = [p for p, _ in Context(*before).present if _key(p) not in kept]
        changes += [PackageChange(package.id, "removed") for package in gone]
    return Rebuilds(against, tuple(changes))


_Key = tuple[str, str]


def _key(package: Package) -> _Key:
    """Return what names a package in both trees: its id is another one beside a first release."""
    return package.release_name, package.short_id


def _tree(
    matrix: Matrix, root: Path, wanted: set[_Key]
) -> tuple[dict[_Key, tuple[Package, str]], dict[str, Facts]]:
    """Return the wanted packages of a tree with their recipes, and the facts by path.

    Raises ToolError for a recipe that has none.
    """
    paths = {p.variant.path for p in matrix.packages if _key(p) in wanted}
    context = Context(matrix, root, [v for v in matrix.variants if v.path in paths])
    given = recipe_facts.facts_of(context)
    for package, _ in context.present:
        if package.path not in given.facts:
            result = given.results.get(package.path)
            why = result.error if result else "its PyTorch has no recipe"
            what = f"{package.path}: not comparable, see `invoke verify` in both trees"
            raise ToolError(f"{what}: {why}")
    present = {_key(p): (p, recipe.text) for p, recipe in context.present if _key(p) in wanted}
    return present, given.facts


def _change(
    old: Package, new: Package, before: Facts, after: Facts, *, is_text: bool
) -> PackageChange:
    """Return the state of a package and the causes, the root cause first."""
    # The model of nixpkgs does not see these.
    causes = []
    revisions = [package.variant.pin.rev for package in (old, new)]
    if revisions[0] != revisions[1]:
        causes.append(f"nixpkgs {revisions[0][:8]} -> {revisions[1][:8]}")
    if old.variant.packages_from != new.variant.packages_from:
        causes.append("files of CUDA packages of another repository")
    if before["drvPath"] == after["drvPath"] and not causes:
        return PackageChange(new.id, "text only" if is_text else "unchanged")
    facts = list(_of_facts(before, after))
    if facts and new is new.variant:
        had, has = ([rule.id for rule in it.variant.effects.rules] for it in (old, new))
        causes += [f"rule {name} begins to apply" for name in has if name not in had]
        causes += [f"rule {name} ends to apply" for name in had if name not in has]
    causes += facts
    if not causes and new is not new.variant:
        return PackageChange(new.id, "follows", (new.variant.id,))
    return PackageChange(new.id, "rebuilt", tuple(causes) or ("paths of its inputs",))


def _of_facts(before: Facts, after: Facts) -> Iterator[str]:
    """Yield one line for each fact that differs and does not follow from the version or a name."""
    pairs = [(before["attr.version"], after["attr.version"])]
    pairs.append((before["attr.pname"], after["attr.pname"]))
    (version, new_version), (name, new_name) = pairs
    is_moved, is_other = version != new_version, False
    if is_moved:
        yield f"version: {version} -> {new_version}"
    changed = [n for n in before.keys() | after.keys() if before.get(n) != after.get(n)]
    for fact in sorted(changed, key=lambda name: (not name.startswith(_FIRST), name)):
        old, new = before.get(fact), after.get(fact)
        is_source = is_moved and fact.startswith("src.")
        if _CAUSE.match(fact) and not is_source and _renamed(old, pairs) != new:
            is_other = True
            yield f"{fact.removeprefix('attr.')}: {_described(old, new)}"
    if name != new_name and not (is_moved or is_other):
        yield "another name"


def _renamed(value: Any, pairs: Iterable[tuple[str, str]]) -> Any:  # noqa: ANN401 - facts
    """Return a value with another version and name."""
    if isinstance(value, list):
        return [_renamed(item, pairs) for item in value]
    for old, new in pairs:
        value = value.replace(old, new) if isinstance(value, str) else value
    return value


def _described(old: Any, new: Any) -> str:  # noqa: ANN401 - facts
    """Return the change of a fact: the first words that differ."""
    before, after = _words(old), _words(new)
    gone = [_short(word) for word in before if word not in after]
    come = [_short(word) for word in after if word not in before]
    if len(gone) == len(come):
        changes = [f"{word} -> {other}" for word, other in zip(gone, come, strict=True)]
    else:
        changes = [f"{word} removed" for word in gone] + [f"{word} added" for word in come]
    if len(changes) > _MOST_WORDS:
        changes[_MOST_WORDS:] = [f"{len(changes) - _MOST_WORDS} more changes"]
    return ", ".join(changes) or "only order, layout, quotes or comments"


def _words(value: Any) -> list[str]:  # noqa: ANN401 - a fact
    """Return the items of a list, or the words of a text without its comments."""
    if isinstance(value, list):
        return list(map(str, value))
    return re.findall(r"[^\s\"']+", _COMMENT.sub("", str(value)))


def _short(word: str) -> str:
    return shortened(" ".join(word.split()), _SHOWN)


def show(found: Rebuilds, screen: Screen, *, verbose: bool = False) -> None:
    """Print the packages by cause, at most some causes unless verbose, then the other states."""
    rebuilt = (change for change in found.packages if change.state == "rebuilt")
    groups = grouped((change.causes, change.package) for change in rebuilt)
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
    said: dict[State, str] = {
        "follows": "rebuilt because their PyTorch is",
        "new": "new",
        "removed": "removed",
        "text only": "with another text; nothing of them is rebuilt",
        "unchanged": "unchanged",
    }
    states = grouped((change.state, change.package) for change in found.packages)
    for state, what in said.items():
        if names := states.get(state, []):
            which = "" if state == "unchanged" else f": {some(names)}"
            screen.fold("", f"{counted(len(names), 'package')} {what}{which}")
