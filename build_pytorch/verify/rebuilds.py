"""What a change rebuilds, and why: the derivations and the facts of two trees."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from build_pytorch.base import git
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import BuildPytorchError, MatrixError, ToolError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.nix import evaluation
from build_pytorch.verify import recipe_facts
from build_pytorch.verify.context import Context
from build_pytorch.verify.recipe_facts import Facts

State = Literal["rebuilt", "follows", "new", "removed", "text only", "unchanged"]

_SHOWN: Final = 60  #: characters of a value
_MOST: Final = 3  #: changed words of one fact
_FIRST: Final = ("input.", "attr.propagatedBuildInputs", "src.")
"""Facts from which others follow; they are named first."""
_COMMENT: Final = re.compile(r"(?m)^\s*#.*$")
_NO_CAUSE: Final = re.compile(
    r"builds\.|attr\.(?:name|pname|version|src)\b|(?:meta|passthru|path|env|file|jobs|hook|nixpkgs|torch"
    r"|cudaPackages|checkout|release)\.|drvPath|brokenForOther|warnings|MAX_JOBS"
)
"""Facts that are no part of a derivation, or that follow from the text of a hook."""


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

    def of(self, *states: State) -> list[PackageChange]:
        """Return the packages in some states."""
        return [change for change in self.packages if change.state in states]

    @property
    def is_none(self) -> bool:
        """Whether nothing has to be built."""
        return not self.of("rebuilt", "follows", "new")


def since(matrix: Matrix, ref: str, variants: Sequence[Variant]) -> Rebuilds:
    """Return what differs in variants and their companions between a Git commit and the checkout.

    Raises BuildPytorchError for a name that is no commit, for a matrix that cannot be read, and
    for a recipe of either that does not evaluate.
    """
    if reason := git.refusal(matrix.root):
        raise BuildPytorchError(f"--against: {reason}")
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
    contexts = [_context(matrix, root, wanted) for matrix, root in (before, after)]
    old_facts, new_facts = map(_facts, contexts)
    old, new = ({_key(p): p for p, _ in c.present if _key(p) in wanted} for c in contexts)
    changes = []
    for key, package in new.items():
        if key not in old:
            changes.append(PackageChange(package.id, "new"))
            continue
        pair = old[key], package
        facts = old_facts[pair[0].path], new_facts[package.path]
        texts = [c.recipes[p.path].text for c, p in zip(contexts, pair, strict=True)]
        changes.append(_change(*pair, *facts, is_text=texts[0] != texts[1]))
    if len(wanted) == len(after[0].packages):
        kept = {_key(package) for package in after[0].packages}
        gone = [p for p, _ in Context(*before).present if _key(p) not in kept]
        changes += [PackageChange(package.id, "removed") for package in gone]
    return Rebuilds(against, tuple(changes))


def _key(package: Package) -> tuple[str, str]:
    """Return what names a package in both trees: its id is another one beside a first release."""
    return package.release_name, package.short_id


def _context(matrix: Matrix, root: Path, wanted: set[tuple[str, str]]) -> Context:
    """Return the recipes of the variants of the wanted packages in a tree."""
    packages = [package for package in matrix.packages if _key(package) in wanted]
    paths = {package.variant.path for package in packages}
    return Context(matrix, root, [variant for variant in matrix.variants if variant.path in paths])


def _facts(context: Context) -> dict[str, Facts]:
    """Return the facts of a tree by path. Raises ToolError for a recipe that has none."""
    given = recipe_facts.facts_of(context)
    for package, _ in context.present:
        if package.path not in given.facts:
            result = given.results.get(package.path)
            why = result.error if result else "its PyTorch has no recipe"
            what = f"{package.path}: not comparable, see `invoke verify` in both trees"
            raise ToolError(f"{what}: {why}")
    return given.facts


def _change(
    old: Package, new: Package, before: Facts, after: Facts, *, is_text: bool
) -> PackageChange:
    """Return the state of a package and the causes, the root cause first."""
    of_matrix = list(_of_matrix(old, new))
    if before["drvPath"] == after["drvPath"] and not of_matrix:
        return PackageChange(new.id, "text only" if is_text else "unchanged")
    own = list(_of_facts(before, after))
    rules = list(_of_rules(old, new)) if own and new is new.variant else []
    causes = tuple(dict.fromkeys([*of_matrix, *rules, *own]))
    if not causes and new is not new.variant:
        return PackageChange(new.id, "follows", (new.variant.id,))
    return PackageChange(new.id, "rebuilt", causes or ("paths of its inputs",))


def _of_matrix(old: Package, new: Package) -> Iterator[str]:
    """Yield what the matrix says of causes that the model of nixpkgs cannot see."""
    revisions = [package.variant.pin.rev for package in (old, new)]
    if len(set(revisions)) > 1:
        yield f"nixpkgs {revisions[0][:8]} -> {revisions[1][:8]}"
    if old.variant.packages_from != new.variant.packages_from:
        yield "files of CUDA packages of another repository"


def _of_rules(old: Package, new: Package) -> Iterator[str]:
    """Yield the rules that begin or end to apply."""
    names = [[rule.id for rule in package.variant.effects.rules] for package in (old, new)]
    yield from (f"rule {name} begins to apply" for name in names[1] if name not in names[0])
    yield from (f"rule {name} ends to apply" for name in names[0] if name not in names[1])


def _of_facts(before: Facts, after: Facts) -> Iterator[str]:
    """Yield one line for each fact that differs and does not follow from the version or a name."""
    pairs = [(before.get(name), after.get(name)) for name in ("attr.version", "attr.pname")]
    (old_version, new_version), (old_name, new_name) = pairs
    is_moved = old_version != new_version
    if is_moved:
        yield f"version: {old_version} -> {new_version}"
    changed = [n for n in before.keys() | after.keys() if before.get(n) != after.get(n)]
    is_other = not is_moved
    for fact in sorted(changed, key=lambda name: (not name.startswith(_FIRST), name)):
        if not (_NO_CAUSE.match(fact) or (is_moved and fact.startswith("src."))):
            old, new = before.get(fact), after.get(fact)
            if _renamed(old, pairs) != new:
                is_other = False
                yield f"{fact.removeprefix('attr.')}: {_described(old, new)}"
    if is_other and old_name != new_name:
        yield "another name"


def _renamed(value: Any, pairs: list[tuple[Any, Any]]) -> Any:  # noqa: ANN401 - facts
    """Return a value with another version and name."""
    if isinstance(value, list):
        return [_renamed(item, pairs) for item in value]
    for old, new in pairs:
        if isinstance(value, str) and old and new:
            value = value.replace(str(old), str(new))
    return value


def _described(old: Any, new: Any) -> str:  # noqa: ANN401 - facts
    """Return the change of a fact: the first words that differ."""
    if old is None or new is None:
        return "added" if old is None else "removed"
    before, after = _words(old), _words(new)
    gone = [_short(word) for word in before if word not in after]
    come = [_short(word) for word in after if word not in before]
    if len(gone) == len(come):
        changes = [f"{word} -> {other}" for word, other in zip(gone, come, strict=True)]
    else:
        changes = [f"{word} removed" for word in gone] + [f"{word} added" for word in come]
    if len(changes) > _MOST:
        changes[_MOST:] = [f"{len(changes) - _MOST} more changes"]
    return ", ".join(changes) or "only order, layout, quotes or comments"


def _words(value: Any) -> list[str]:  # noqa: ANN401 - a fact
    """Return the items of a list, or the words of a text without its comments."""
    if isinstance(value, list):
        return [str(item) for item in value]
    return re.findall(r"[^\s\"']+", _COMMENT.sub("", str(value)))


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _SHOWN)
