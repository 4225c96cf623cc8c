"""One move of a release: new versions in, the values of matrix.toml that change out.

A move is a dict {path: value} for each reason, such as "PyTorch 2.11.0". `invoke bump` writes it
over the release; with `--as`, into a new release that is like it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, structs

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix import known_hardware, matrix_reader, matrix_text
from build_pytorch.matrix.defaults import OF_GITHUB
from build_pytorch.matrix.field_types import Trail, listed, misfits
from build_pytorch.matrix.known_hardware import repository_of, version_for
from build_pytorch.matrix.matrix_text import Value
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import PackageSource, Pin, Release
from build_pytorch.matrix.versions import numbers
from build_pytorch.sources import pin_facts
from build_pytorch.sources.github import NightlyCommit

Values = dict[Trail, Value]
"""New values of a release by their path below its table; None removes the key."""

_LEFT_OUT: Final = "none"
"""In place of the table of a companion that a release would inherit."""


class Move(Struct, frozen=True, kw_only=True):
    """A release that moves to other versions; what is empty stays as it is.

    With `beside`, a new release of that name moves, which is like it.
    """

    matrix: Matrix
    name: str
    beside: str = ""
    torch: str = ""
    nixpkgs: str = ""  #: a revision, or the key of a pin
    cuda: str = ""
    python: str = ""
    commit: NightlyCommit | None = None  #: the new source of a nightly

    def __post_init__(self) -> None:
        """Raise BuildPytorchError for a malformed value, a name in use, a CUDA without GPUs."""
        given = {
            "torch": (self.torch, ft.Version),
            "cuda": (self.cuda, ft.CudaVersion),
            "python": (self.python, ft.Python3),
            "as": (self.beside, ft.Key),
        }
        for option, (value, form) in given.items():
            for _, what in misfits(value, form) if value else ():
                raise BuildPytorchError(f"--{option}: {what}")
        if self.beside in self.matrix.releases:
            what = f'release "{self.beside}" exists already'
            raise BuildPytorchError(f"--as: {what}; choose another name")
        if self.cuda and self.old.cuda is None:
            raise BuildPytorchError(f"--cuda: release {self.name} has no CUDA")

    @property
    def old(self) -> Release:
        """The release before the move."""
        return self.matrix.releases[self.name]

    @property
    def new_name(self) -> str:
        """The name of the release that has the new versions."""
        return self.beside or self.name

    @property
    def new_cuda(self) -> str:
        """The version of CUDA after the move; empty without CUDA."""
        return self.cuda or (self.old.cuda.version if self.old.cuda else "")


# --- the pin ---


def _known_pins(matrix: Matrix) -> dict[str, Pin]:
    """Return the pins of a matrix, and known revisions that it does not have."""
    revisions = {pin.rev for pin in matrix.pins.values()}
    known = known_hardware.load().pin.items()
    return {key: pin for key, pin in known if pin.rev not in revisions} | matrix.pins


def _pin_of(move: Move) -> tuple[str, Pin]:
    """Return key and pin of a release after a move, with what the pin contains.

    If nobody knows whether a pin has the versions, Nix evaluates it. Raises ToolError if that
    fails, and BuildPytorchError if it lacks one.
    """
    key, pin = _wanted_pin(move) if move.nixpkgs else _best_pin(move)
    if _lacking(move, pin):
        pin = pin_facts.learned(move.matrix, pin)
    if lacking := _lacking(move, pin):
        hint = "--nixpkgs REV moves to another one"
        raise BuildPytorchError(f"nixpkgs {pin.rev} has no {lacking}; {hint}")
    return key, pin


def _best_pin(move: Move) -> tuple[str, Pin]:
    """Return the pin with the CUDA that has the PyTorch, else the present one, else the newest."""
    pins, own, torch = _known_pins(move.matrix), move.old.nixpkgs.pin, move.old.torch

    def rank(key: str) -> tuple[bool, bool, tuple[int, ...], bool]:
        has_torch = torch.is_of_pin and pins[key].torch == (move.torch or torch.version)
        return has_torch, key == own, numbers(pins[key].torch), key in move.matrix.pins

    fitting = [key for key, pin in pins.items() if move.new_cuda in {"", *pin.cuda.values()}]
    key = max(fitting, key=rank, default=own)
    return key, pins[key]


def _wanted_pin(move: Move) -> tuple[str, Pin]:
    """Return the pin that `nixpkgs` names; a new revision has no facts.

    It replaces the revision of a pin that only this release uses. Raises BuildPytorchError.
    """
    rev, own, pins = move.nixpkgs, move.old.nixpkgs.pin, _known_pins(move.matrix)
    for key, pin in pins.items():
        if rev in {key, pin.rev}:
            return key, pin
    if misfits(rev, ft.Rev40):
        allowed = "40 hex digits of a revision, key of a pin, or stable, lts, unstable of Flox"
        raise BuildPytorchError(f'--nixpkgs: found "{rev[:40]}"; allowed: {allowed}')
    key = own
    if move.beside or sum(it.nixpkgs.pin == own for it in move.matrix.releases.values()) > 1:
        key = move.beside or move.name
        while key in pins:
            key += "_new"
    changed = {"rev": rev, "date": "not known", "sha256": "", "sha256_of": ""}
    return key, structs.replace(pins[own], **changed, facts=None, unconfirmed=None)


def _lacking(move: Move, pin: Pin) -> str:
    """Return what the release needs and its pin is not known to have, with what it has."""
    if not pin_facts.is_known(pin):
        return "known contents"
    if move.new_cuda not in {"", *pin.cuda.values()}:
        return f"CUDA {move.new_cuda}: {listed(dict.fromkeys(pin.cuda.values())) or 'none'}"
    pythons = {pin.python, *(pin.facts.pythons if pin.facts else ())}
    if pin.rev == move.matrix.pins[move.old.nixpkgs.pin].rev:  # it has that of the release
        pythons.add(move.old.python.version)
    python = move.python or move.old.python.version
    return "" if python in pythons else f"Python {python}: {listed(sorted(pythons))}"


# --- a function for each axis ---


def _of_pin(move: Move, key: str, pin: Pin) -> Values:
    """The pin; the revision before it is retired."""
    old, before = move.old.nixpkgs, move.matrix.pins[move.old.nixpkgs.pin].rev
    if move.beside:
        return {("nixpkgs", "pin"): key, ("nixpkgs", "retired"): []}
    if pin.rev == before:
        return {}
    retired = [rev for rev in (*old.retired, before) if rev != pin.rev]
    return {("nixpkgs", "pin"): key, ("nixpkgs", "retired"): retired}


def _of_torch(move: Move, version: str, pin: Pin) -> Values:
    """The source of PyTorch and of its companions: those of the pin where it has this version.

    A companion without a known version is left out.
    """
    torch, is_asked = move.old.torch, move.torch or move.nixpkgs
    is_of_pin = version == pin.torch and bool(torch.is_of_pin or is_asked)
    if (version, is_of_pin) == (torch.version, torch.is_of_pin):
        return {}
    values: Values = {}
    for place, source in move.old.sources.items():
        own = version if source is torch else version_for(version, place[-1])
        if own is None:
            values[place] = _LEFT_OUT
        else:
            changed = _of_source(place[-1], source, own, is_of_pin=is_of_pin)
            values |= {(*place, field): value for field, value in changed.items()}
    return values


def _of_source(
    name: str, source: PackageSource, version: str, *, is_of_pin: bool
) -> dict[str, Value]:
    """Return the changed keys of a source."""
    if is_of_pin:
        return {"version": version, "source": "nixpkgs", **dict.fromkeys(OF_GITHUB)}
    values: dict[str, Value] = {"version": version, "rev": f"v{version}", "hash": "", "hash_of": ""}
    if source.is_of_pin:
        owner, repo = repository_of(name)
        values |= {"source": "github", "owner": owner, "repo": repo}
    return values


def _of_commit(move: Move, commit: NightlyCommit) -> Values:
    """The source of a nightly, whose hash is not known yet."""
    if commit.rev == move.old.torch.rev:
        return {}
    source = {**structs.asdict(commit), "hash": "", "hash_of": ""}
    return {("torch", key): value for key, value in source.items()}


def _of_cuda(move: Move, pin: Pin) -> Values:
    """The CUDA, the package set of the pin that has it, and its oldest driver."""
    old, version = move.old.cuda, move.new_cuda
    if old is None:
        return {}
    sets = [name for name, each in pin.cuda.items() if each == version]
    package_set = old.package_set if old.package_set in sets else sets[-1]
    values: Values = {}
    if package_set != old.package_set:
        values["cuda", "package_set"] = package_set
    if version != old.version:
        driver = None if version in known_hardware.load().cuda else old.driver
        facts = {"version": version, "driver": driver, "source": None, "checked": None}
        values |= {("cuda", field): value for field, value in facts.items()}
    return values


def _of_python(move: Move) -> Values:
    is_new = move.python not in {"", move.old.python.version}
    return {("python", "version"): move.python} if is_new else {}


# --- the text ---


def moved(move: Move) -> tuple[Matrix, dict[str, Values]]:
    """Return the matrix after a move, and the values of the release that changed by their reason.

    Raises MatrixError if the matrix is not consistent then, and as `_pin_of`.
    """
    matrix, text, name = move.matrix, move.matrix.text, move.new_name
    place: Trail = ("release", name)
    key, pin = _pin_of(move)
    version = move.torch or (pin.torch if move.old.torch.is_of_pin else move.old.torch.version)
    by_reason = {
        f"nixpkgs {pin.rev}": _of_pin(move, key, pin),
        f"CUDA {move.new_cuda}": _of_cuda(move, pin),
        f"Python {move.python}": _of_python(move),
    }
    if move.commit:
        by_reason[f"PyTorch {move.commit.version}"] = _of_commit(move, move.commit)
    else:
        by_reason[f"PyTorch {version}"] = _of_torch(move, version, pin)
    by_reason = {reason: values for reason, values in by_reason.items() if values}
    values = {trail: value for group in by_reason.values() for trail, value in group.items()}
    if pin != _known_pins(matrix).get(key):
        text = pin_facts.written(text, key, pin, matrix.pins.get(key))
    elif key not in matrix.pins:  # what it contains is known by its revision
        text = matrix_text.with_table(text, ("pin", key), {"rev": pin.rev})
    if move.beside:
        table = {
            "like": move.name,
            "folder": f"releases/{name}/.flox/pkgs",
            "catalog": name,
            "purpose": f"not written yet; made from {move.name}",
            "support": "evaluated; no build recorded here",
        }
        text = matrix_text.with_table(text, place, table)
    elif {("cuda", "version"), ("python", "version")} & values.keys():
        values["cleanup",] = None  # of files with the old names
    for trail in [trail for trail, value in values.items() if value == _LEFT_OUT]:
        text = matrix_text.without_table(text, (*place, *trail))
        if not (move.beside or move.old.like):
            del values[trail]
    text = matrix_text.with_values(text, {(*place, *trail): values[trail] for trail in values})
    return matrix_reader.parse(text, root=matrix.root), by_reason


def left_to_do(move: Move, after: Matrix) -> Iterator[str]:
    """Yield what a person has to check after a move."""
    old, new = move.old, after.releases[move.new_name]
    if doubts := after.pins[new.nixpkgs.pin].doubts:
        ask = "`invoke prefetch --only nixpkgs` asks nixpkgs itself"
        yield f"pin.{new.nixpkgs.pin}, {doubts}; {ask}"
    if new.torch.triton_rev != old.torch.triton_rev:
        yield f"compare the Triton of the pin with {new.torch.triton_rev}, for torch.compile"
    for name in old.companions.keys() - new.companions:
        yield f"{name} is left out: no version for PyTorch {new.torch.version} is known"
    if move.beside:
        yield f"write the purpose of release.{move.beside}: whom it is for"
