"""The commands that build, publish and install a package, as `recommend` and `show` print them."""

from __future__ import annotations

from collections.abc import Sequence

from build_pytorch.matrix.model import Package
from build_pytorch.results.package_state import PackageState


def commands(
    package: Package, state: PackageState, companions: Sequence[Package] = ()
) -> dict[str, list[str]]:
    """Return the commands that build, test and publish a package, and install a published one.

    A companion is installed and published with its variant. `set` installs a variant with
    `companions`.
    """
    variant, name = package.variant, package.id
    together = [variant] if package is variant else [variant, package]
    by_session = [f'nox -s "build({name})"'] if package is variant else []
    found = {"build": [f"invoke build {name}", *by_session]}
    found["test"] = [f"invoke smoke {name}", f"invoke inspect {name}"]
    found["publish"] = [f"invoke publish {','.join(each.id for each in together)}"]
    if published := state.publication:
        found["install"] = [_install(together, published.organization)]
        if companions:
            found["set"] = [_install([*together, *companions], published.organization)]
    return found


def _install(packages: Sequence[Package], organization: str) -> str:
    """Return the command that installs packages of one organization together."""
    names = (f"{organization or 'ORG'}/{package.package}" for package in packages)
    return f"flox install {' '.join(names)}"
