"""What a revision of nixpkgs contains, as one evaluation says, and its tables in matrix.toml."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from build_pytorch.base import foreign_json, process
from build_pytorch.base.console import waiting
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix import matrix_text
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import Pin, PinFacts
from build_pytorch.nix import evaluation, quoting, store
from build_pytorch.sources.fetchers import SECONDS, nixpkgs_of

_EXPRESSION: Final = Path(__file__).with_suffix(".nix")
_EVALUATED: Final = ("cccl-headers", "cmake-flags")
"""Fixes that the expression finds; others are known by the URLs of their patches."""


class _Evaluated(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of pin_facts.nix."""

    torch: ft.Version
    python: ft.Python3
    cuda: dict[ft.NixName, ft.CudaVersion]
    has: tuple[str, ...]
    magma_urls: tuple[str, ...] | None
    facts: dict[str, Any]


def is_known(pin: Pin) -> bool:
    """Return whether the pin has facts of its own revision."""
    return pin.facts is not None and pin.facts.of == pin.rev


def learned(matrix: Matrix, pin: Pin) -> Pin:
    """Evaluate a pin and return it with what it contains. Raises ToolError if that fails."""
    path = quoting.literal(str(_EXPRESSION))
    argv = store.evaluate_argv(f"import (/. + {path}) {{ nixpkgs = {nixpkgs_of(pin)}; }}")
    with waiting(f"evaluating nixpkgs {pin.rev}"):
        result = process.run(argv, seconds=SECONDS)
    if result.code:
        why = evaluation.message_of(result.stderr)
        raise ToolError(f"nixpkgs {pin.rev} cannot be evaluated: {why}")
    try:
        found = msgspec.convert(foreign_json.decode(result.stdout), _Evaluated)
        facts = msgspec.convert({**_without_empty(found.facts), "of": pin.rev}, PinFacts)
    except ValueError as error:
        raise ToolError(f"nixpkgs {pin.rev} cannot be evaluated: {error}") from None
    return structs.replace(
        pin,
        torch=found.torch,
        python=found.python,
        cuda=found.cuda,
        has=_has(matrix, pin, found),
        facts=facts,
        unconfirmed=None,
        source="an evaluation of this revision",
        checked=dt.datetime.now(dt.UTC).date().isoformat(),
    )


def _has(matrix: Matrix, pin: Pin, found: _Evaluated) -> tuple[str, ...]:
    """Return the fixes in a pin; those that nothing tells of stay as they are."""
    by_patch = {
        name: {matrix.patches[key].url for key in rule.effect.patches}
        for rule in matrix.rules
        if rule.until and rule.effect.patches
        for name in rule.until.pin_has
    }
    kept = [name for name in pin.has if name not in {*_EVALUATED, *by_patch}]
    patched = [name for name, urls in by_patch.items() if urls <= {*(found.magma_urls or ())}]
    return (*kept, *patched, *found.has)


def written(text: str, key: str, pin: Pin, before: Pin | None) -> str:
    """Return the text of a matrix with a pin and what it contains, in place of the one before."""
    table: dict[str, Any] = _without_empty(msgspec.to_builtins(pin))
    facts = table.pop("facts", {})
    if before is None:
        text = matrix_text.with_table(text, ("pin", key), table)
    else:
        old = structs.asdict(before)
        names = [name for name, value in structs.asdict(pin).items() if value != old[name]]
        changed = {*names, "has"} - {"facts"}
        text = matrix_text.with_values(text, {("pin", key, n): table.get(n) for n in changed})
    return matrix_text.with_table(text, ("pin", key, "facts"), facts)


def _without_empty(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a document without what is null or empty."""
    if not isinstance(value, dict):
        return value
    inner = {key: _without_empty(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each not in (None, "", [], (), {})}
