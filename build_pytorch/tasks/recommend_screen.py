"""The screen of `invoke recommend`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from build_pytorch.base.console import Screen, counted
from build_pytorch.hardware import explain
from build_pytorch.hardware.choice import Choice, ChosenBuild
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.matrix.model import Variant

_COLUMN: Final = 28
"""Maximum width of a table's first column, in characters."""


class Offer(Struct, frozen=True, kw_only=True):
    """How to get a build of the matrix."""

    says: str
    """Whether somebody has built it."""
    first: dict[str, str]
    """The commands beside the build, by what they do."""
    every: dict[str, list[str]]
    """All commands, by what they do."""


OfferOf = Callable[[Variant], Offer]


def show(
    screen: Screen, machine: Machine, choice: Choice, offer_of: OfferOf, *, verbose: bool
) -> None:
    """Print what is chosen for a machine; `verbose`: also what is not, and why."""
    for remark in choice.remarks[: len(machine.other_gpus)]:
        screen.fold("note     ", remark, "yellow", indent=9)
    screen.line()
    if choice.is_wheel_first:
        _print_wheel(screen, machine, choice)
    _print_first(screen, choice, offer_of)
    if not choice.is_wheel_first:
        _print_wheel(screen, machine, choice)
    screen.line()
    if verbose:
        _print_rest(screen, choice, offer_of)
    else:
        others = sum(len(answer.accepted[1:]) for answer in choice.answers)
        counts = f"{counted(others, 'fallback')}, {counted(len(choice.remarks), 'remark')}"
        screen.line(f"`-v` adds {counts}, and why the others do not run")


def _print_first(screen: Screen, choice: Choice, offer_of: OfferOf) -> None:
    """Print the best build, what must be updated for it, and what would be better."""
    best, first, update = choice.best, choice.first, choice.update
    is_said = choice.better is not None and choice.better.gpus  # in its reason
    if choice.ideal and choice.ideal.unused and not (update or is_said):
        why = choice.ideal.why_unused
        screen.fold("", f"{why[0].upper()}{why[1:]}.", "yellow")
    if update and first is not best:
        screen.fold("", f"First {update.says}. Then:", "yellow")
    if first:
        _print_build(screen, "Best", first, offer_of)
    else:
        screen.line(screen.paint("No variant runs here.", "red"))
    if best and first is not best:
        screen.fold("", f"Until then: {best.variant.id}; {best.reason}")
    elif update:
        screen.fold("Better: ", f"{update.says}, then {update.build.variant.id}")
    if choice.better:
        said = first.doubts if first else ()
        doubts = tuple(doubt for doubt in choice.better.doubts if doubt not in said)
        build = msgspec.structs.replace(choice.better, doubts=doubts)
        _print_build(screen, "Ideal", build, offer_of)


def _print_build(screen: Screen, title: str, build: ChosenBuild, offer_of: OfferOf) -> None:
    """Print a build: why, whether it exists, and how to get it."""
    variant = build.variant
    where = "" if build.is_in_matrix else " (not in matrix.toml)"
    screen.line(screen.paint(f"{title}: {variant.id}{where}", "green"))
    on = f"on CUDA {variant.cuda.version}" if variant.cuda else "without CUDA"
    reason = build.reason
    if build.gpus and build.unused and not build.why_unused:
        left = [str(gpu.index) for gpu in build.unused]
        reason += f"; GPU {', '.join(left)} stay{'s' * (len(left) == 1)} unused"
    screen.fold("  ", f"PyTorch {variant.version} {on}; {reason}")
    for doubt in build.doubts:
        screen.fold("  check: ", doubt, "yellow")
    if not build.is_in_matrix:
        if build.command:
            screen.command("  add it   ", build.command)
        if build.lines:
            screen.line("  add it   to matrix.toml, then `invoke all`:")
            for line in build.lines.splitlines():
                screen.line(f"    {line}".rstrip())
        return
    offer = offer_of(variant)
    screen.line(f"  {offer.says}")
    for what, command in offer.first.items():
        screen.command(f"  {what:<8} ", command)


def _print_wheel(screen: Screen, machine: Machine, choice: Choice) -> None:
    """Print the official wheel, and what was measured between it and the first build."""
    found = choice.wheel
    if found is None:
        screen.line(f"Wheel: nothing is known of official ones for {machine.platform}")
        return
    screen.line(screen.paint(f"Wheel: {found.title}", "green"))
    screen.fold("  ", "; ".join([found.code, *found.limits]))
    if choice.first:
        screen.fold("  ", f"{choice.first.variant.id} against it: {choice.compared}")
    screen.command("  install  ", found.command)


def _print_rest(screen: Screen, choice: Choice, offer_of: OfferOf) -> None:
    """Print for each kind of GPUs what else runs, what does not and why; then remarks."""
    for answer in choice.answers:
        best, fallbacks = answer.best, []
        if len(choice.answers) > 1:
            of = f"GPU {', '.join(str(gpu.index) for gpu in answer.gpus)} ({answer.gpus[0].name})"
            screen.line(f"{of}: {best.variant.id if best else 'no variant runs on it'}")
        if best:
            offer = offer_of(best.variant)
            shown = offer.first if choice.first and choice.first.variant is best.variant else {}
            for what, lines in offer.every.items():
                if what not in shown:
                    screen.command(f"  {what:<8} ", lines[0])
            for it in answer.accepted[1:]:
                doubts = [doubt for doubt in it.doubts if doubt not in best.doubts]
                fallbacks.append(
                    (it.variant.id, "; ".join([explain.why_fallback(it, best), *doubts]))
                )
        _print_table(screen, "Fallbacks, in this order:", fallbacks)
        reasons = explain.joined((reason.subject, reason.text) for reason in answer.reasons)
        _print_table(screen, "Why not the others:", reasons)
    if len(choice.answers) > 1:
        text = choice.for_all.id if choice.for_all else "no variant runs on each of them"
        screen.line(f"For all GPUs: {text}")
    for remark in choice.remarks:
        screen.fold("note     ", remark, "yellow", indent=9)


def _print_table(screen: Screen, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        width = max((len(first) for first, _ in rows if len(first) <= _COLUMN), default=_COLUMN)
        screen.line(title)
        for first, second in rows:
            screen.fold(f"  {first:<{width}}  ", second, indent=width + 4)
