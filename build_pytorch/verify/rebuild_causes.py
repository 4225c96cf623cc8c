"""The causes of a rebuild in words: one line for each attribute or input that differs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from build_pytorch.base.console import shortened

_SHOWN: Final = 60  #: characters of a value
_MOST: Final = 3  #: changed lines or words of one attribute
_NAMES: Final = ("pname", "version")  #: attributes from which others follow
_COMMENT: Final = "a comment of the script"
_STORE: Final = re.compile(r"(?:/[\w.+-]+)+/[0-9a-z]{32}-")


class Difference(msgspec.Struct, frozen=True):
    """Something in which two derivations differ: an attribute, or an input with its versions.

    `trail` names the inputs on the way from the package to it. None: one of them has it not.
    """

    before: Any
    after: Any
    trail: tuple[str, ...] = ()
    attribute: str = ""
    input: str = ""


def causes(differences: Sequence[Difference]) -> list[str]:
    """Return one line for each difference that does not follow from another one.

    Another version comes first, then inputs of another version.
    """
    names = [d for d in differences if d.attribute in _NAMES and not d.trail]
    is_moved = any(name.attribute == "version" for name in names)
    found = []
    for difference in sorted(differences, key=_rank):
        is_source = difference.trail == ("source",)  # that of another version is another one
        if (is_moved and is_source) or (difference.attribute and _follows(difference, names)):
            continue
        if difference.attribute in {"pname", "name"} and not difference.trail:
            found += [] if is_moved else ["another name"]  # that of each package is its own
            continue
        way = f"input {' of '.join(reversed(difference.trail))}: " if difference.trail else ""
        describe = _of_input if difference.input else _of_attribute
        found.append(way + describe(difference))
    return list(dict.fromkeys(found))


def _rank(difference: Difference) -> int:
    if difference.trail:
        return 3
    is_moved = difference.input and None not in (difference.before, difference.after)
    return 0 if difference.attribute == "version" else 1 if is_moved else 2


def _follows(difference: Difference, names: Sequence[Difference]) -> bool:
    """Return whether an attribute differs only by another version or name, or paths of inputs."""
    before, after = (_STORE.sub("", str(value)) for value in (difference.before, difference.after))
    if difference not in names:
        for name in names:
            before = before.replace(str(name.before), str(name.after))
    return before == after


def _of_input(difference: Difference) -> str:
    name, before, after = difference.input, difference.before, difference.after
    kind = "patch" if name.endswith((".patch", ".diff")) else "input"
    if before is None:
        return f"{kind} {name} added"
    if after is None:
        return f"{kind} {name} removed"
    return f"{kind} {name} {before} -> {after}" if before != after else f"{kind} {name} differs"


def _of_attribute(difference: Difference) -> str:
    """Return the changes of an attribute, the first of them if there are many."""
    name, before, after = difference.attribute, difference.before, difference.after
    changes = list(dict.fromkeys(_changed_items(_items(before), _items(after))))
    if not changes:
        is_blank = "".join(_text(before).split()) == "".join(_text(after).split())
        changes = ["white space only" if is_blank else "another order or quoting"]
    rest = [f"{len(changes) - _MOST} more changes"] if len(changes) > _MOST else []
    return f"{name}: {', '.join([*changes[:_MOST], *rest])}"


def _changed_items(before: list[str], after: list[str]) -> list[str]:
    """Return what was added and removed; of a changed line, the changed words."""
    changes: list[str] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        gone, come = before[first:last], after[new_first:new_last]
        if kind == "replace" and len(gone) == len(come) and any(" " in line for line in gone):
            for old, new in zip(gone, come, strict=True):
                is_comment = old.startswith("#") and new.startswith("#")
                words = _changed_items(_words(old), _words(new))
                changes += [_COMMENT] if is_comment and words else words
        elif kind == "replace" and len(gone) == len(come):
            pairs = zip(gone, come, strict=True)
            changes += [f"{_short(old)} -> {_short(new)}" for old, new in pairs]
        elif kind != "equal":
            changes += [f"{_short(line)} removed" for line in gone if line not in after]
            changes += [f"{_short(line)} added" for line in come if line not in before]
    return changes


def _items(value: Any) -> list[str]:  # noqa: ANN401 - a value of Nix
    """Return the elements of a list, the lines of a text, or the words of a single line."""
    if isinstance(value, list):
        return [_text(item) for item in value]
    text = _text(value)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return lines if "\n" in text else _words(text)


def _words(line: str) -> list[str]:
    return re.findall(r"[^\s\"']+", line)


def _text(value: Any) -> str:  # noqa: ANN401 - a value of Nix
    if value is None:
        return ""
    if isinstance(value, dict) and "derivation" in value:
        return str(value["derivation"])
    return _STORE.sub("", value if isinstance(value, str) else str(value))


def _short(text: str) -> str:
    return shortened(" ".join(_STORE.sub("", text).split()), _SHOWN)
