"""`invoke compare`: whether a build is faster than another one, or than the official wheel."""

from __future__ import annotations

import sys
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from build_pytorch.base import outputs
from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError, exit_code_of
from build_pytorch.build.build_obstacles import usable_cpus
from build_pytorch.cli.commands import CompareOptions
from build_pytorch.compare import comparison, workload_script
from build_pytorch.compare.comparison import Comparison
from build_pytorch.compare.measurement import MeasuredSetting
from build_pytorch.compare.ratio_statistics import Estimate
from build_pytorch.matrix import matrix_reader, selection
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import evidence, ledger
from build_pytorch.results.ledger import Event, Verdict, subject_of

_COLOURS: Final = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.NOISY: "yellow"}
_MEAN: Final = "geometric mean"
_GIB: Final = 1 << 30


class CompareDocument(Comparison, frozen=True, kw_only=True):
    """The document of --json."""

    exit_code: int


class WorkloadsDocument(Struct, frozen=True):
    """The document of --list --json: names of workloads, by kind of device."""

    workloads: dict[str, list[str]]


class RecordedDocument(Struct, frozen=True):
    """The document of --show --json."""

    comparisons: list[Event]


def run(options: CompareOptions) -> int:
    """Compare two builds, record and print it.

    Returns 0: A is not slower; 1: it is; 3: too noisy. Raises BuildPytorchError for bad input.
    """
    screen = Screen(sys.stderr if options.json else sys.stdout)
    if options.list:
        return _list(screen, as_json=options.json)
    matrix = matrix_reader.load(options.root)
    if options.show:
        return _show_recorded(screen, matrix, options)
    named = [*options.variants, *options.python]
    named += [options.against] if options.against else ["wheel"] if len(named) == 1 else []
    if len(named) != 2:  # noqa: PLR2004 - A and B
        raise BuildPytorchError("name a build, such as a variant, and --against another one")
    if not 0 < options.minutes < float("inf"):
        raise BuildPytorchError(f"--minutes {options.minutes:g}: give minutes, more than 0")
    if options.device != "cpu" and options.device.strip("0123456789"):
        raise BuildPytorchError(f"--device {options.device}: allowed: cpu, or the number of a GPU")
    if options.release:
        selection.require_release(matrix, options.release)
    with outputs.exclusive_lock(options.root, "compare.lock", "compares"):
        result, build = comparison.compare(
            matrix,
            named,
            screen.line,
            release=options.release,
            device=options.device,
            threads=options.threads,
            minutes=options.minutes,
            cores=usable_cpus(),
        )
    _show(screen, result)
    if build.package and not result.recorded:
        screen.fold("not recorded: ", evidence.unknown_recipe(build.package))
    code = exit_code_of([result.outcome])
    if options.json:
        print_json(CompareDocument(**asdict(result), exit_code=code), sys.stdout)
    return code


def _list(screen: Screen, *, as_json: bool) -> int:
    """Print the names of all workloads."""
    names = {kind: workload_script.names(kind) for kind in workload_script.WORKLOADS}
    if as_json:
        print_json(WorkloadsDocument(names), sys.stdout)
    for kind, listed in () if as_json else names.items():
        screen.fold(f"{kind.upper()}, {counted(len(listed), 'workload')}: ", ", ".join(listed))
    return EXIT_OK


def _show_recorded(screen: Screen, matrix: Matrix, options: CompareOptions) -> int:
    """Print the last comparison of each package on each class of machine, also of old recipes.

    Of the named variants only, if there are some.
    """
    named = options.variants
    wanted = selection.select(matrix, named, options.release) if named else ()
    subjects = {subject_of(variant) for variant in wanted}
    found = ledger.read(options.root).events
    events = [event for event in found if not wanted or event.subject in subjects]
    last = {(e.subject, e.compared.machine, e.compared.against): e for e in events if e.compared}
    if options.json:
        print_json(RecordedDocument(list(last.values())), sys.stdout)
        return EXIT_OK
    for event in last.values():
        assert event.compared  # noqa: S101 - see above
        facts, (release, package) = event.compared, event.subject
        ratios = ", ".join(f"{setting}: {ratio:.2f}" for setting, ratio in facts.ratios.items())
        screen.fold(f"{release}/{package}  ", f"{ratios}; against {facts.against}")
        screen.fold("  ", f"{facts.machine}, {event.at[:10]}, recipe {event.digest[:19]}")
    if not last:
        screen.line("no comparison of a package is recorded; `invoke compare VARIANT` makes one")
    return EXIT_OK


def _show(screen: Screen, result: Comparison) -> None:
    """Print the builds, the machine, a table for each setting, and the outcome."""
    for name, side in (("A", result.a), ("B", result.b)):
        closure = f", closure {side.closure / _GIB:.2f} GiB" if side.closure else ""
        memory = f", {side.resident >> 20} MiB after import"
        screen.fold(f"{name}: ", f"{side.label}: PyTorch {side.torch}{closure}{memory}")
    machine = result.machine
    load = f"governor {machine.governor}, load {machine.load:.1f} at the start"
    screen.fold("on ", f"{machine.class_}; {load}")
    screen.line("ratio: time of A / time of B; below 1 A is faster, above 1 A is slower")
    for setting in result.settings:
        _show_setting(screen, setting)
    for reason in result.reasons:
        screen.fold("A against B, ", reason)
    screen.line(f"report: {result.report}")


def _show_setting(screen: Screen, found: MeasuredSetting) -> None:
    repeats = [f"{number} repeated ({why})" for why, number in found.repeated.items()]
    rounds = ", ".join([counted(len(found.rounds), "round"), *repeats])
    screen.line("")
    screen.fold(f"{found.title}, ", rounds, "bold")
    head = f"  {'workload':<23}{'ratio':>6}  {'95 % interval':<14}{'A ms':>9}{'B ms':>9}  verdict"
    screen.line(screen.paint(head, "dim"))
    for name, estimate in found.workloads.items():
        a, b = (seconds * 1e3 for seconds in found.seconds[name])
        screen.line(_row(screen, name, estimate, f"{a:>9.4g}{b:>9.4g}"))
    if found.mean:
        screen.line(_row(screen, _MEAN, found.mean, " " * 18))
    for name, why in found.missing.items():
        screen.fold(f"  {name}: not measured: ", why)
    for side, facts in zip("AB", found.facts, strict=True):
        torch = facts.report.torch
        pools = ", ".join("/".join(path.split("/")[-2:]) for path in torch.pools)
        threads = counted(torch.threads, "thread")
        if found.setting.threads not in {0, torch.threads}:
            threads += f", not {found.setting.threads}"
        said = [threads, f"pools: {pools or 'none of a library'}"]
        if facts.report.gpu:
            said.append(f"{facts.context >> 20} MiB of device memory for its context")
            said.append(f"{facts.clock} MHz")
        screen.fold(f"  {side}: ", "; ".join(said))


def _row(screen: Screen, name: str, estimate: Estimate, times: str) -> str:
    limits = f"{estimate.low:.2f} to {estimate.high:.2f}"
    verdict = screen.paint(estimate.verdict, _COLOURS.get(estimate.verdict, ""))
    return f"  {name:<23}{estimate.ratio:>6.2f}  {limits:<14}{times}  {verdict}"
