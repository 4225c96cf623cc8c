"""`invoke recommend`: print what is chosen for a machine, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.cli.describe_machine import described_machine
from build_pytorch.cli.recommend_document import answer
from build_pytorch.cli.recommend_screen import Offer
from build_pytorch.compare.ratio_statistics import overall
from build_pytorch.hardware.wheels import Measurement
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.results import package_state
from build_pytorch.results.package_state import PackageState


def run(options: RecommendOptions) -> int:
    """Print the recommendation. Returns 1 if no variant runs. Raises BuildPytorchError."""
    matrix = matrix_reader.load(options.root)
    described = described_machine(options, matrix)
    here = [variant for variant in matrix.variants if variant.platform == described[0].platform]
    known = package_state.package_states(options.root, here)

    def offer_of(variant: Variant) -> Offer:
        return _offer(known[variant.id], matrix.companions_of(variant))

    measurements = list(_measurements(known.values()))
    return answer(options, matrix, described, measurements, offer_of)


def _measurements(states: Iterable[PackageState]) -> Iterator[Measurement]:
    """Yield what comparisons of current recipes found, as the ledger has it."""
    for state in states:
        for event in state.of_recipe("tested"):
            if facts := event.compared:
                yield Measurement(
                    package=state.package.id,
                    against=facts.against,
                    machine_class=facts.machine,
                    verdict=overall(facts.verdicts.values()),
                    figures=event.reason,
                    date=event.at[:10],
                )


def _offer(state: PackageState, companions: Sequence[Package]) -> Offer:
    every = commands(state.package, state, companions)
    what, says = "build", "a recipe; nobody here has built it yet"
    if state.publication:
        organization = state.publication.organization
        what, says = "install", f"built and published by {organization or 'yourself'}"
    elif state.output:
        what, says = "publish", "built here"
    return Offer(says=says, first={what: every[what][0]}, every=every)


def commands(
    package: Package, state: PackageState, companions: Sequence[Package] = ()
) -> dict[str, list[str]]:
    """Return the commands that build a package, publish it, and install it once it is published.

    A companion is installed and published with its variant. `set` installs a variant with
    `companions`.
    """
    variant, name = package.variant, package.id
    together = [variant] if package is variant else [variant, package]
    by_session = [f'nox -s "build({name})"'] if package is variant else []
    found = {"build": [f"invoke build {name}", *by_session]}
    found["publish"] = [f"invoke publish {' '.join(each.id for each in together)}"]
    if published := state.publication:
        found["install"] = [_install(together, published.organization)]
        if companions:
            found["set"] = [_install([*together, *companions], published.organization)]
    return found


def _install(packages: Sequence[Package], organization: str) -> str:
    """Return the command that installs packages of one organization together."""
    names = (f"{organization or 'ORG'}/{package.package}" for package in packages)
    return f"flox install {' '.join(names)}"
