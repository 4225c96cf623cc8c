"""The ledger of another machine: a file that is read strictly before its lines are taken over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, get_args

from msgspec.structs import replace

from build_pytorch.base import files, foreign_json
from build_pytorch.base.console import changed_texts, masked, shortened
from build_pytorch.base.errors import BuildPytorchError, DocumentError
from build_pytorch.matrix.field_types import converted, quoted
from build_pytorch.results import signed_test
from build_pytorch.results.ledger import HOST, AnyEvent, Tested

_LONGEST: Final = 64 << 10  #: bytes of a line; the largest one has some thousand
_UNKNOWN: Final = "another machine"  #: the host of an event that names none
_SKEW: Final = timedelta(hours=1)  #: by which the clock of another machine may be ahead

_KINDS: Final = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyEvent)}

_NAME: Final = re.compile(r"[\w.+:@/-]{0,300}", re.ASCII)
_PATH: Final = re.compile(r"(?!.*\.\.)(?:[\w.][\w.+/-]{0,400})?", re.ASCII)
_STORE_PATH: Final = re.compile(r"(?:/[\w.+=?-]{1,250}){0,20}", re.ASCII)
_TEXTS: Final = {
    **dict.fromkeys(("release", "variant", "digest", "attempt", "backend", "cause", "host"), _NAME),
    **dict.fromkeys(("log", "report"), _PATH),
    **dict.fromkeys(("output", "outputs", "derivation"), _STORE_PATH),
}
"""What texts by which files are named or events compared may contain. The others are messages."""


def read(path: Path, trusted_keys: Sequence[str]) -> Iterator[AnyEvent]:
    """Yield the events of a file, with times as the ledger writes them and with a host.

    A line may be a statement that one of the keys signed. `-` is standard input. An incomplete last
    line is what a killed process leaves, and is left out. Raises BuildPytorchError with the line
    for everything else that is not an event of ours.
    """
    name = files.input_name(path)
    *lines, rest = files.read_input(path).split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            yield _event(line, trusted_keys)
        except (ValueError, DocumentError) as error:
            what = f"not an event of a ledger: {_reason(error)}; nothing was merged"
            raise BuildPytorchError(f"{name}:{number}: {what}") from None
    if rest:
        try:
            yield _event(rest, trusted_keys)  # perhaps only the end of the line is missing
        except (ValueError, DocumentError):
            if not lines:
                raise BuildPytorchError(f"{name}: not a ledger; nothing was merged") from None


def signed_tests(path: Path, trusted_keys: Sequence[str]) -> Iterator[Tested | str]:
    """Yield the test in each line of a file, or why it does not hold; nothing after other text.

    Raises BuildPytorchError if the file cannot be read.
    """
    for line in files.read_input(path).splitlines() or [b""]:
        try:
            document = foreign_json.decode(line, max_bytes=_LONGEST)
        except ValueError as error:
            yield f"not a file that --sign wrote: {error}"
            return
        try:
            yield _signed_test(document, trusted_keys)
        except DocumentError as error:
            yield f"not what --sign writes: {_reason(error)}; get the file again"
        except ValueError as error:
            yield _reason(error)


def _reason(error: Exception) -> str:
    """Return the first reason in one short line; nobody can add what a machine did not sign."""
    return shortened(str(error).partition("\n")[0].removesuffix("; add it"), 200)


def _event(line: bytes, trusted_keys: Sequence[str]) -> AnyEvent:
    """Return the event of a line. Raises ValueError."""
    document = foreign_json.decode(line, max_bytes=_LONGEST)
    if isinstance(document, dict) and "payload" in document:
        return _signed_test(document, trusted_keys)
    event = _checked(document)
    if not isinstance(event, Tested):
        return event
    host = _UNKNOWN if event.host == HOST else event.host  # only this machine writes its own name
    return replace(event, host=host, signed=None)  # a signature counts where it can be checked


def _signed_test(document: object, trusted_keys: Sequence[str]) -> Tested:
    """Return the test in an envelope. Raises ValueError."""
    predicate, key = signed_test.opened(document, trusted_keys)
    event = _checked(predicate)
    if not isinstance(event, Tested) or event.signed is None:
        raise ValueError("signed, and no test")
    return replace(event, signed=replace(event.signed, key=key), report="")


def _checked(raw: object) -> AnyEvent:
    """Return the event of a document. Raises ValueError, or DocumentError for a wrong type."""
    document = changed_texts(raw, masked)
    event_name = document.get("event") if isinstance(document, dict) else None
    kind = _KINDS.get(str(event_name))
    if kind is None:
        raise DocumentError(f"event: found {quoted(event_name)}; allowed: {' or '.join(_KINDS)}")
    event: AnyEvent = converted(document, kind)
    if unknown := set(document) - {"event", *event.__struct_fields__}:
        raise ValueError(f'unknown key "{min(unknown)}"; is it of a newer version?')
    for name, allowed in _TEXTS.items():
        values = getattr(event, name, ())
        for value in values if isinstance(values, tuple) else (values,):
            if not allowed.fullmatch(value):
                raise ValueError(f"{name}: found {shortened(value, 60)!r}")
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, int | float) and not 0 <= value < 2**53:
            raise ValueError(f"{name}: found {value}")
    try:
        at = datetime.fromisoformat(event.at)
    except ValueError:
        raise ValueError(f"at: found {event.at!r}, which is no time") from None
    if at.tzinfo is None or at > datetime.now(UTC) + _SKEW:
        raise ValueError(f"at: found {event.at!r}, which is in the future or of no time zone")
    moment = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return replace(event, at=moment, host=event.host or _UNKNOWN)
