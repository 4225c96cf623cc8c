"""One move of a release: new versions in, the values of matrix.toml that change out.

A move is a dict {path: value} for each reason, such as "PyTorch 2.11.0". `invoke bump` writes it
over the release; with `--as`, into a new release that is like it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, structs

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix import known_hardware, matrix_reader, matrix_text
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.field_types import Trail, listed, misfits
from build_pytorch.matrix.known_hardware import repository_of, version_for
from build_pytorch.matrix.matrix_text import Value
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import PackageSource, Pin, Release
from build_pytorch.matrix.versions import is_revision, numbers
from build_pytorch.sources import pin_facts
from build_pytorch.sources.github import NightlyCommit

Values = dict[Trail, Value]
"""New values of a release by their path below its table; None removes the key."""

_OF_GITHUB: Final = ("owner", "repo", "rev", "submodules", "hash", "hash_of", "patches")
"""Keys of a source that is not the one of the pin."""
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
    key, pin = _target_pin(move)
    if lacking := _lacking(move, pin):
        try:
            pin = pin_facts.learned(move.matrix, pin)
        except ToolError as error:
            raise ToolError(f"pin.{key} is not known to have {lacking}; {error}") from None
        if lacking := _lacking(move, pin):
            hint = "--nixpkgs REV moves to another one"
            raise BuildPytorchError(f"nixpkgs {pin.rev} has no {lacking}; {hint}")
    return key, pin


def _target_pin(move: Move) -> tuple[str, Pin]:
    """Return key and pin: the wanted one, or the best one with the wanted versions.

    A new revision has no facts; it replaces that of a pin that only this release uses.
    """
    rev, own, torch = move.nixpkgs, move.old.nixpkgs.pin, move.old.torch
    pins = _known_pins(move.matrix)

    def order(key: str) -> tuple[bool, bool, tuple[int, ...], bool]:
        is_native = torch.is_of_pin and pins[key].torch == (move.torch or torch.version)
        return is_native, key == own, numbers(pins[key].torch), key in move.matrix.pins

    if not rev:
        fitting = [key for key, pin in pins.items() if move.new_cuda in {"", *pin.cuda.values()}]
        key = max(fitting, key=order, default=own)
        return key, pins[key]
    for key, pin in pins.items():
        if rev in {key, pin.rev}:
            return key, pin
    if not is_revision(rev):
        allowed = "40 hex digits of a revision, key of a pin, or stable, lts, unstable of Flox"
        raise BuildPytorchError(f'--nixpkgs: found "{rev[:40]}"; allowed: {allowed}')
    key = own
    users = [name for name, it in move.matrix.releases.items() if it.nixpkgs.pin == own]
    if move.beside or len(users) > 1:
        key = move.beside or move.name
        while key in pins:
            key += "_new"
    changed = {"rev": rev, "date": "not known", "sha256": "", "sha256_of": ""}
    return key, structs.replace(pins[own], **changed, facts=None, unconfirmed=None)


def _lacking(move: Move, pin: Pin) -> str:
    """Return what the release needs and its pin is not known to have, with what it has."""
    if not pin_facts.is_known(pin):
        return f"anything: nobody evaluated {pin.rev}"
    if move.new_cuda not in {"", *pin.cuda.values()}:
        return f"CUDA {move.new_cuda}: {listed(dict.fromkeys(pin.cuda.values())) or 'none'}"
    pythons = {pin.python, *(pin.facts.pythons if pin.facts else ())}
    if pin.rev == move.matrix.pins[move.old.nixpkgs.pin].rev:  # it has that of the release
        pythons.add(move.old.python.version)
    python = move.python or move.old.python.version
    return "" if python in pythons else f"Python {python}: {listed(sorted(pythons))}"


# --- a function for each axis ---


def _values(move: Move, key: str, pin: Pin) -> dict[str, Values]:
    """Return the changed values by their reason. `pin` is that of the moved release.

    Raises BuildPytorchError for a PyTorch that is broken on the CUDA.
    """
    old, commit = move.old, move.commit
    version = move.torch or (pin.torch if old.torch.is_of_pin else old.torch.version)
    by_reason = {f"nixpkgs {pin.rev}": _of_pin(move, key, pin)}
    if commit is None:
        by_reason[f"PyTorch {version}"] = _of_torch(move, version, pin)
    elif (commit.version, commit.rev) != (old.torch.version, old.torch.rev):
        source = {**structs.asdict(commit), "hash": "", "hash_of": ""}
        by_reason[f"PyTorch {commit.version}"] = {("torch", key): it for key, it in source.items()}
    by_reason[f"CUDA {move.new_cuda}"] = _of_cuda(move, key, pin)
    if move.python not in {"", old.python.version}:
        by_reason[f"Python {move.python}"] = {("python", "version"): move.python}
    return {reason: values for reason, values in by_reason.items() if values}


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
        others = dict.fromkeys(() if source.is_of_pin else _OF_GITHUB)
        return {"version": version, "source": "nixpkgs", **others}
    values: dict[str, Value] = {"version": version, "rev": f"v{version}", "hash": "", "hash_of": ""}
    if source.is_of_pin:
        owner, repo = repository_of(name)
        values |= {"source": "github", "owner": owner, "repo": repo}
        values |= {"submodules": True} if name == "torch" else {}
    return values


def _of_cuda(move: Move, key: str, pin: Pin) -> Values:
    """The CUDA, the package set of the pin that has it, and its oldest driver."""
    old, version = move.old.cuda, move.new_cuda
    if old is None:
        return {}
    sets = [name for name, each in pin.cuda.items() if each == version]
    package_set = old.package_set if old.package_set in sets else sets[-1]
    if broken := pin.cuda_facts(package_set).unforgiven:
        what = f"nixpkgs marks torch as broken on {package_set} of pin.{key}: {'; '.join(broken)}"
        raise BuildPytorchError(f"{what}; --nixpkgs REV moves to another one")
    values: Values = {}
    if package_set != old.package_set:
        values["cuda", "package_set"] = package_set
    if version != old.version:
        driver = None if version in known_hardware.load().cuda else old.driver
        facts = {"version": version, "driver": driver, "source": None, "checked": None}
        values |= {("cuda", field): value for field, value in facts.items()}
    return values


# --- the text ---


class Moved(Struct, frozen=True, kw_only=True):
    """A matrix after a move, and the values of the release that changed, by their reason."""

    matrix: Matrix
    by_reason: dict[str, Values]
    release: Release
    pin: Pin


def moved(move: Move) -> Moved:
    """Move a release. Raises MatrixError if the matrix is not consistent then, and as `_pin_of`."""
    matrix, text, name = move.matrix, move.matrix.text, move.beside or move.name
    place: Trail = ("release", name)
    key, pin = _pin_of(move)
    by_reason = _values(move, key, pin)
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
        text = matrix_text.without_table(text, (*place, "cleanup"))  # of files with the old names
    for trail in [trail for trail, value in values.items() if value == _LEFT_OUT]:
        text = matrix_text.without_table(text, (*place, *trail))
        if not (move.beside or move.old.like):
            del values[trail]
    text = matrix_text.with_values(text, {(*place, *trail): values[trail] for trail in values})
    for group in _groups(move) if move.beside else ():
        text = matrix_text.with_table(text, (*place, "group", 0), group)
    new = matrix_reader.parse(text, root=matrix.root)
    return Moved(matrix=new, by_reason=by_reason, release=new.releases[name], pin=pin)


def _groups(move: Move) -> list[dict[str, Any]]:
    """Return the groups of a new release; none if its CUDA compiles for all that it inherits."""
    cuda = move.old.cuda and structs.replace(move.old.cuda, version=move.new_cuda)
    fitting = [key for key, gpu in move.matrix.gpus.items() if compiles(cuda, gpu)]
    groups = []
    for group in move.old.group:
        gpus = [key for key in group.gpu if key in fitting]
        given = structs.asdict(group) | {"gpu": gpus}
        if gpus or not group.gpu:
            groups.append({name: value for name, value in given.items() if value})
    is_inherited = all({*group.gpu} <= {*fitting} for group in move.old.group)
    return [] if is_inherited else groups


def left_to_do(move: Move, moved: Moved) -> Iterator[str]:
    """Yield what a person has to check after a move."""
    old, new, pin = move.old, moved.release, moved.pin
    if pin.doubts:
        ask = "`invoke prefetch --only nixpkgs` asks nixpkgs itself"
        yield f"pin.{new.nixpkgs.pin}, {pin.doubts}; {ask}"
    if new.torch.triton_rev != old.torch.triton_rev:
        yield f"compare the Triton of the pin with {new.torch.triton_rev}, for torch.compile"
    for name, companion in old.companions.items():
        now = new.companions.get(name)
        if now is None:
            yield f"{name} is left out: no version for PyTorch {new.torch.version} is known"
        elif now.version != companion.version and now.patches == "keep" and not now.is_of_pin:
            yield f"check whether the patches of nixpkgs apply to {name} {now.version}"
    if old.cuda and new.cuda and new.cuda.version != old.cuda.version:
        yield f"check that the rules and driver {new.cuda.driver} fit CUDA {new.cuda.version}"
    if move.beside:
        yield f"write the purpose of release.{move.beside}: whom it is for"
