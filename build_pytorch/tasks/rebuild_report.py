"""What a change rebuilds, as `verify --against` and `bump` print it."""

from __future__ import annotations

from typing import Final

from build_pytorch.base.console import Screen, counted, grouped, some, visible
from build_pytorch.verify.rebuilds import Rebuilds

_MOST: Final = 5  #: groups of packages with the same causes


def print_rebuilds(found: Rebuilds, screen: Screen, *, verbose: bool = False) -> None:
    """Print the packages by cause, at most _MOST causes unless verbose, then the other states."""
    groups = grouped((change.causes, change.package) for change in found.of("rebuilt"))
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    for causes, names in largest[: None if verbose else _MOST]:
        screen.line(screen.paint(f"{counted(len(names), 'package')} rebuilt", "bold"))
        for cause in causes:
            screen.fold("  because ", visible(cause), indent=10)
        screen.fold("  ", some(names), indent=2)
    if not verbose and len(groups) > _MOST:
        rest = sum(len(names) for _, names in largest[_MOST:])
        screen.line(f"{counted(rest, 'package')} rebuilt for other causes; -v lists them")
    since = f" since {visible(found.against)}" if found.against else ""
    if found.is_none:
        screen.fold("", f"Nothing is rebuilt{since}.")
    said = {
        "follows": "rebuilt because their PyTorch is",
        "new": "new",
        "removed": "removed",
        "text only": "with another text; nothing of them is rebuilt",
        "unchanged": "unchanged",
    }
    states = grouped((change.state, change.package) for change in found.packages)
    for state, what in said.items():
        if names := states.get(state):  # type: ignore[call-overload]
            which = "" if state == "unchanged" else f": {some(names)}"
            screen.fold("", f"{counted(len(names), 'package')} {what}{which}")
