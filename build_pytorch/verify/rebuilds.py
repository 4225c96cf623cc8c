"""What a change rebuilds, and why: the derivations and the facts of two trees."""

from __future__ import annotations

import contextlib
import difflib
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from build_pytorch.base import git
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import BuildPytorchError, MatrixError, ToolError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.nix import evaluation
from build_pytorch.verify import recipe_facts
from build_pytorch.verify.context import Context
from build_pytorch.verify.recipe_facts import Facts, RecipeFacts

State = Literal["rebuilt", "follows", "new", "removed", "text only", "unchanged"]

_SHOWN: Final = 60  #: characters of a value
_MOST: Final = 3  #: changed words of one fact
_FIRST: Final = ("attr.version", "input.", "attr.propagatedBuildInputs", "src.")
"""Facts from which others follow; they are named first."""
_COMMENT: Final = re.compile(r"(?m)^\s*#.*$")
_NO_CAUSE: Final = re.compile(
    r"meta\.|passthru\.|drvPath|brokenForOther|warnings|MAX_JOBS|path\.|env\.|file\.|jobs\.|hook\."
    r"|nixpkgs\.|torch\.|cudaPackages\.|attr\.src"
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


@contextlib.contextmanager
def checkout_of(root: Path, ref: str) -> Iterator[tuple[Matrix, Path]]:
    """Yield the matrix of a Git commit and a temporary folder with its files.

    Raises BuildPytorchError for a name that is no commit and for a matrix that cannot be read.
    """
    if reason := git.refusal(root):
        raise BuildPytorchError(f"--against: {reason}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            git.extract(root, ref, folder)
            matrix = matrix_reader.load(folder)
        except MatrixError as error:
            first = str(error).partition("\n")[0].removeprefix(f"{folder}/")
            raise BuildPytorchError(f"--against {ref}: this version cannot read {first}") from None
        except ToolError as error:
            raise BuildPytorchError(f"--against {error}") from None
        yield matrix, folder


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
    runs = [recipe_facts.start(context) for context in contexts]
    old_facts, new_facts = (_facts(run.finish() if run else None) for run in runs)
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


def _facts(given: RecipeFacts | None) -> dict[str, Facts]:
    """Return the facts of a tree by path. Raises ToolError for a recipe that has none."""
    if given is None:
        return {}
    for result in given.results.values():
        if result.error and not result.id.startswith("pin"):
            what = f"{result.id}: not comparable, see `invoke verify` in both trees"
            raise ToolError(f"{what}: {result.error}")
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
    versions = before.get("attr.version"), after.get("attr.version")
    is_moved = versions[0] != versions[1]
    if is_moved:
        yield f"version: {versions[0]} -> {versions[1]}"
    names = before.get("attr.pname"), after.get("attr.pname")
    causes = []
    changed = [n for n in before.keys() | after.keys() if before.get(n) != after.get(n)]
    for fact in sorted(changed, key=lambda name: (not name.startswith(_FIRST), name)):
        is_source = is_moved and fact.startswith("src.")
        if (
            _NO_CAUSE.match(fact)
            or is_source
            or fact in {"attr.name", "attr.pname", "attr.version"}
        ):
            continue
        old, new = before.get(fact), after.get(fact)
        if _renamed(old, versions, names) != new:
            causes.append(f"{_label(fact)}{_described(old, new)}")
    yield from causes
    if names[0] != names[1] and not (is_moved or causes):
        yield "another name"


def _label(fact: str) -> str:
    kind, _, name = fact.partition(".")
    label = {"attr": name, "input": f"input {name}", "src": f"source: {name}"}.get(
        kind, f"input {kind}: {name}"
    )
    return f"{label} " if kind == "input" else f"{label}: "


def _renamed(value: Any, *pairs: tuple[Any, Any]) -> Any:  # noqa: ANN401 - facts
    """Return a value with another version and name."""
    if isinstance(value, list):
        return [_renamed(item, *pairs) for item in value]
    for old, new in pairs:
        if isinstance(value, str) and old and new:
            value = value.replace(str(old), str(new))
    return value


def _described(old: Any, new: Any) -> str:  # noqa: ANN401 - facts
    """Return the change of a fact: the first words that differ."""
    if old is None or new is None:
        return "added" if old is None else "removed"
    before, after = _words(old), _words(new)
    changes = list(dict.fromkeys(_changed_words(before, after)))
    if not changes:
        if "".join(str(old).split()) == "".join(str(new).split()):
            return "white space only"
        is_comment = before == after and _COMMENT.search(str(old) + str(new))
        return "a comment of the script" if is_comment else "another order or quoting"
    rest = [f"{len(changes) - _MOST} more changes"] if len(changes) > _MOST else []
    return ", ".join([*changes[:_MOST], *rest])


def _words(value: Any) -> list[str]:  # noqa: ANN401 - a fact
    """Return the items of a list, or the words of a text without its comments."""
    if isinstance(value, list):
        return [str(item) for item in value]
    return re.findall(r"[^\s\"']+", _COMMENT.sub("", str(value)))


def _changed_words(before: list[str], after: list[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        gone, come = before[first:last], after[new_first:new_last]
        if kind == "replace" and len(gone) == len(come):
            pairs = zip(gone, come, strict=True)
            is_new = (pair for pair in pairs if pair[0] not in after or pair[1] not in before)
            yield from (f"{_short(old)} -> {_short(new)}" for old, new in is_new)
        elif kind != "equal":
            yield from (f"{_short(word)} removed" for word in gone if word not in after)
            yield from (f"{_short(word)} added" for word in come if word not in before)


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _SHOWN)
