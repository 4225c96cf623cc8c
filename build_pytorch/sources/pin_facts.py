"""What a revision of nixpkgs contains: evaluated, or assumed to be what another pin contains."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from build_pytorch.base import foreign_json, process
from build_pytorch.base.errors import BuildPytorchError, ToolError, near_miss
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix import known_hardware, matrix_editor
from build_pytorch.matrix.hashed_sources import Source
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import Pin, PinFacts
from build_pytorch.nix import quoting, store
from build_pytorch.sources.fetchers import explain, mirrored

_EXPRESSION: Final = Path(__file__).with_suffix(".nix")
_LEARNED: Final = ("cccl-headers", "cmake-flags")
OR_ASSUME: Final = "without an evaluation, --assume PIN takes what another pin contains"
_FIELDS: Final = ("torch", "python", "cuda", "has")


class _Evaluated(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of pin_facts.nix."""

    torch: ft.Version
    python: ft.Version
    cuda: dict[ft.NixName, ft.CudaVersion]
    has: tuple[str, ...]
    magma_urls: tuple[str, ...] | None
    facts: dict[str, Any]


def is_known(pin: Pin) -> bool:
    """Return whether the pin has facts of its own revision."""
    return pin.facts is not None and pin.facts.of == pin.rev


def assumed(matrix: Matrix, pin: Pin, name: str) -> Pin:
    """Return a pin with what another one contains. Raises BuildPytorchError for an unknown one."""
    pins = {**known_hardware.load().pin, **matrix.pins}
    other = pins.get(name)
    if other is None or other.facts is None:
        hint = near_miss(name, pins) or f"; there are {', '.join(pins)}"
        raise BuildPytorchError(f'--assume: no pin "{name[:60]}" with facts{hint}')
    facts = structs.replace(other.facts, of=pin.rev, unconfirmed=f"all: copied from pin.{name}")
    same = {field: getattr(other, field) for field in _FIELDS}
    return structs.replace(pin, **same, facts=facts)


def learned(matrix: Matrix, key: str, pin: Pin, minutes: float) -> Pin:
    """Evaluate a pin and return it with what it contains.

    Raises ToolError if it cannot be evaluated.
    """
    hash_ = pin.sha256 if pin.sha256_of == pin.rev else ""
    source = Source(
        name="nixpkgs",
        release="",
        place=("pin", key),
        table=pin,
        pin=pin,
        may_wait=True,
        hash=hash_,
        taken_for=pin.rev,
        recorded=pin.sha256_of,
    )
    given = {"url": mirrored(pin.address), "sha256": hash_}
    code = " ".join(f"{name} = {quoting.literal(value)};" for name, value in given.items() if value)
    nixpkgs = f"import (builtins.fetchTarball {{ {code} }})"
    path = quoting.literal(str(_EXPRESSION))
    argv = store.evaluate_argv(f"import (/. + {path}) {{ nixpkgs = {nixpkgs}; }}")
    result = process.start(argv).finish(minutes * 60)
    try:
        document = foreign_json.decode("" if result.code else result.stdout)
        found = msgspec.convert(document, _Evaluated)
        facts = msgspec.convert({**_without_null(found.facts), "of": pin.rev}, PinFacts)
    except ValueError as error:
        what = f"{error} in what it contains" if result.code == 0 else explain(source, result)
        raise ToolError(what) from None
    return structs.replace(
        pin,
        torch=found.torch,
        python=found.python,
        cuda=found.cuda,
        has=tuple(_has(matrix, pin, found)),
        facts=facts,
        unconfirmed=None,
        source="an evaluation of this revision",
        checked=dt.datetime.now(dt.UTC).date().isoformat(),
    )


def table(pin: Pin) -> dict[str, Any]:
    """Return the table of a pin, without what is not known."""
    empty = {"sha256": pin.sha256, "sha256_of": pin.sha256_of}
    values: dict[str, Any] = _without_null(msgspec.to_builtins(pin))
    return {key: (empty | values)[key] for key in pin.__struct_fields__ if key in empty | values}


def written(text: str, key: str, pin: Pin) -> str:
    """Return the text of a matrix with what a pin that it has contains."""
    values = table(pin)
    facts = values.pop("facts")
    changed: dict[ft.Trail, matrix_editor.Value] = {}
    changed |= {
        ("pin", key, name): values.get(name)
        for name in (*_FIELDS, "source", "checked", "unconfirmed")
    }
    text = matrix_editor.with_values(text, changed)
    return matrix_editor.with_table(text, ("pin", key, "facts"), facts)


def _has(matrix: Matrix, pin: Pin, found: _Evaluated) -> list[str]:
    """Return the fixes in a pin: those of rules are known by the URLs of their patches."""
    by_patch = {
        name: {matrix.patches[key].url for key in rule.effect.patches}
        for rule in matrix.rules
        if rule.until and rule.effect.patches
        for name in rule.until.pin_has
    }
    urls = {*(found.magma_urls or ())}
    has = [name for name in pin.has if name not in _LEARNED and name not in by_patch]
    has += [name for name, wanted in by_patch.items() if wanted <= urls]
    return [*has, *found.has]


def _without_null(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a document without what is null or empty."""
    if not isinstance(value, dict):
        return value
    inner = {key: _without_null(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each not in (None, "", [], (), {})}
