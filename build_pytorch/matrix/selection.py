"""Which packages and which release a person means."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.field_types import quoted
from build_pytorch.matrix.model import Matrix, Package


def require_release(matrix: Matrix, name: str) -> None:
    """Raise BuildPytorchError if there is no such release."""
    if name not in matrix.releases:
        hint = near_miss(name, matrix.releases) or f"; there are {', '.join(matrix.releases)}"
        raise BuildPytorchError(f'--release "{name}": no such release{hint}')


def only_release(matrix: Matrix, name: str, fitting: Sequence[str]) -> str:
    """Return the release with a name; without a name the fitting one, if there is only one.

    Raises BuildPytorchError.
    """
    if name:
        require_release(matrix, name)
        return name
    if len(fitting) != 1:
        raise BuildPytorchError(f"--release: name one of {', '.join(fitting or matrix.releases)}")
    return fitting[0]


def words_of(patterns: str) -> list[str]:
    """Return the patterns of a text that separates them by commas."""
    return [word for word in (part.strip() for part in patterns.split(",")) if word]


def select_packages(
    matrix: Matrix, patterns: str, companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return variants and companions that one of the patterns names, the variants first.

    A pattern is an id, an id inside its release, or a package name, with `*` for any letters; the
    name of a release; or `all`. A pattern with `*` may match variants of several releases, an id
    may not. No pattern selects all variants. A pattern that matches no variant may match
    companions, such as `sm90-*+torchvision` or `torchvision-*`. `companions` are names of
    companions to add for each selected variant.

    Raises BuildPytorchError for a pattern that matches nothing or is ambiguous, and for a companion
    that no variant has.
    """
    words = words_of(patterns)
    if patterns and not words:
        raise BuildPytorchError(f"found {quoted(patterns)} for packages; name one, or all")
    found = {package.path for word in words or ["all"] for package in _matching(word, matrix)}
    own = [p for p in matrix.companions if p.variant.path in found]
    for name in companions:
        if name not in (names := list(dict.fromkeys(package.name for package in own))):
            hint = near_miss(name, names) or f"; there are {', '.join(names) or 'none'}"
            raise BuildPytorchError(f'no selected variant has a companion "{name}"{hint}')
    found |= {package.path for package in own if package.name in companions}
    return tuple(package for package in matrix.packages if package.path in found)


def _matching(pattern: str, matrix: Matrix) -> Sequence[Package]:
    """Return the variants that a pattern names; without any, the companions."""
    if pattern == "all":
        return matrix.variants
    if pattern in matrix.releases:
        return matrix.of_release(pattern)
    names = {
        p.path: (p.short_id, p.package, f"{p.release_name}/{p.short_id}") for p in matrix.packages
    }
    for candidates in (matrix.variants, matrix.companions):
        matching = [p for p in candidates if any(fnmatchcase(n, pattern) for n in names[p.path])]
        if len(matching) > 1 and not set("*?[") & set(pattern):
            ids = ", ".join(package.id for package in matching)
            raise BuildPytorchError(f"{quoted(pattern)} is ambiguous: {ids}; name one of them")
        if matching:
            return matching
    known = [name for own in names.values() for name in own]
    hint = near_miss(pattern, [*known, *matrix.releases])
    hint = hint or f"; for instance {matrix.variants[0].id} or 'sm90-*'"
    raise BuildPytorchError(f"no package matches {quoted(pattern)}{hint}")


def session_ids(matrix: Matrix) -> list[tuple[str, list[str]]]:
    """Return the id of each variant with the tags of its nox session.

    Tags are the GPU architecture, the CPU ISA, the release, the platform and the kind, and
    `buildable` if a machine can run it, all hashes are there, and no other variant is the same. An
    alias has only the tag `alias`.
    """
    found = []
    for v in matrix.variants:
        tags = [v.gpu_key, v.cpu_key, v.release_name, v.platform, v.kind]
        if not (v.impossible or v.untaken_hashes or v.same_build_as):
            tags.append("buildable")
        found.append((v.id, ["alias"] if v.alias_of else [tag for tag in tags if tag]))
    return found
