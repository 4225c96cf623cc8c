"""What a change rebuilds, and why: the derivations of two trees, compared by one Nix process."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from build_pytorch.base import git
from build_pytorch.base.errors import BuildPytorchError, MatrixError, ToolError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package
from build_pytorch.nix import nix_evaluation
from build_pytorch.verify import rebuild_causes, recipe_evaluation
from build_pytorch.verify.check import Context
from build_pytorch.verify.rebuild_causes import Difference

State = Literal["rebuilt", "follows", "new", "removed", "text only", "unchanged"]


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


class _Pair(msgspec.Struct, frozen=True):
    """The differences of a package in two trees; None if Nix would build the same."""

    id: str
    changes: tuple[Difference, ...] | None


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
    if not nix_evaluation.is_installed():
        raise ToolError("nix-instantiate not found; install Nix")
    contexts = Context(before[0], before[1]), Context(after[0], after[1])
    old, new = ({_key(p): p for p, _ in context.present} for context in contexts)
    wanted = [package for package in map(_key, chosen) if package in new]
    found = _evaluated(contexts, [(old[key], new[key]) for key in wanted if key in old])
    changes = []
    for key in wanted:
        if key not in old:
            changes.append(PackageChange(new[key].id, "new"))
            continue
        pair = old[key], new[key]
        texts = [c.recipes[p.path].text for c, p in zip(contexts, pair, strict=True)]
        changes.append(_change(*pair, found[pair[1].path], is_text=texts[0] != texts[1]))
    if len(wanted) == len(new):
        changes += [PackageChange(p.id, "removed") for key, p in old.items() if key not in new]
    return Rebuilds(against, tuple(changes))


def _key(package: Package) -> tuple[str, str]:
    """Return what names a package in both trees: its id is another one beside a first release."""
    return package.release_name, package.short_id


def _evaluated(
    contexts: tuple[Context, Context], pairs: Sequence[tuple[Package, Package]]
) -> dict[str, tuple[Difference, ...] | None]:
    """Return the differences of pairs of packages by the path of the second one."""
    if not pairs:
        return {}
    running = recipe_evaluation.start_pairs(contexts, pairs)
    result = running.finish(2 * recipe_evaluation.SECONDS)
    if result.code:
        announced = re.findall(r"(?m)^trace: evaluating (.*)$", result.stderr)
        what = announced[-1] if announced else "a recipe"
        message = nix_evaluation.message_of(result.stderr)
        for context in contexts:
            message = message.replace(f"{context.root.resolve()}/", "")
        raise ToolError(f"{what}: not comparable, see `invoke verify` in both trees: {message}")
    decoded = msgspec.json.decode(result.stdout.encode(), type=list[_Pair])
    return {pair.id: pair.changes for pair in decoded}


def _change(
    old: Package, new: Package, found: tuple[Difference, ...] | None, *, is_text: bool
) -> PackageChange:
    """Return the state of a package and the causes, the root cause first."""
    causes = list(_of_matrix(old, new))
    if found is None and not causes:
        return PackageChange(new.id, "text only" if is_text else "unchanged")
    own = [difference for difference in found or () if not _is_of_torch(difference, old, new)]
    if own:
        causes += _of_rules(old, new)
    causes += rebuild_causes.causes(own)
    if not causes and isinstance(new, CompanionPackage):
        return PackageChange(new.id, "follows", (new.variant.id,))
    return PackageChange(new.id, "rebuilt", tuple(causes) or ("paths of its inputs",))


def _of_matrix(old: Package, new: Package) -> Iterator[str]:
    """Yield what the matrix says of causes that the model of nixpkgs cannot see."""
    revisions = [package.variant.pin.rev for package in (old, new)]
    if len(set(revisions)) > 1:
        yield f"nixpkgs {revisions[0][:8]} -> {revisions[1][:8]}"
    sources = [package.variant.packages_from for package in (old, new)]
    if sources[0] != sources[1]:
        yield "files of CUDA packages of another repository"


def _of_rules(old: Package, new: Package) -> Iterator[str]:
    """Yield the rules that begin or end to apply."""
    names = [[rule.id for rule in package.variant.effects.rules] for package in (old, new)]
    yield from (f"rule {name} begins to apply" for name in names[1] if name not in names[0])
    yield from (f"rule {name} ends to apply" for name in names[0] if name not in names[1])


def _is_of_torch(difference: Difference, old: Package, new: Package) -> bool:
    """Return whether a difference of a companion is one of its PyTorch."""
    torches = {old.variant.pname, new.variant.pname}
    way = (*difference.trail, difference.input)
    return isinstance(new, CompanionPackage) and bool(torches & {*way})
