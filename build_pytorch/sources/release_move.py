"""One move of a release: new versions in, a new matrix.toml out, each value with its reason.

Pure. `invoke bump` writes the values over the release; `invoke bump --as` writes them beside it,
into a new release that is like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct, structs

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import digits, is_revision, minor_version, numbers, underscored
from build_pytorch.matrix import (
    field_types,
    known_hardware,
    matrix_editor,
    matrix_reader,
    toml_lines,
)
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.field_types import Trail, listed, misfits
from build_pytorch.matrix.matrix_editor import Value
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import (
    Companion,
    PackageSource,
    Pin,
    repository_of,
    version_for,
)
from build_pytorch.matrix.tables import Group
from build_pytorch.sources import pin_facts
from build_pytorch.sources.nightly import NightlyCommit

_OF_GITHUB: Final = ("owner", "repo", "rev", "fetcher", "submodules", "hash", "hash_of")
_LEFT_OUT: Final = "none"
"""In place of the table of a companion that a release would inherit."""

CONTENTS: Final = "what it contains"
"""What nobody knows of a new revision."""


class NewVersions(Struct, frozen=True, kw_only=True):
    """The versions to move to. What is None stays as it is."""

    torch: field_types.Version | None = None
    nixpkgs: str | None = None  #: a revision, or the key of a pin
    cuda: field_types.CudaVersion | None = None
    python: field_types.Python3 | None = None
    commit: NightlyCommit | None = None  #: the new source of a nightly
    without: tuple[str, ...] = ()  #: companions to leave out

    @property
    def words(self) -> str:
        """The versions, in words."""
        if self.commit:
            return f"{self.commit.version} {self.commit.rev}"
        given = {name: getattr(self, name) for name in ("torch", "nixpkgs", "cuda", "python")}
        words = [f"{name} {version}" for name, version in given.items() if version]
        return " and ".join([*words, *(f"no {name}" for name in self.without)])


def new_versions(**versions: str | tuple[str, ...]) -> NewVersions:
    """Return the versions that are not empty. Raises BuildPytorchError for a malformed one."""
    given = {name: version for name, version in versions.items() if version}
    for (name, *_), what in misfits(given, NewVersions):
        raise BuildPytorchError(f"--{name}: {what}")
    return msgspec.convert(given, NewVersions)


class MovedValue(NamedTuple):
    """A changed value of matrix.toml."""

    value: Value
    reason: str


class ReleaseMove:
    """The changed values of a release; with `beside`, those of a new release that is like it.

    `values` has those of the release and of pins, `pins` the pins that are new or have new facts,
    `todo` what a person has to check. `pin` is the pin of another move with what it contains.
    Raises BuildPytorchError for versions that are not known or that this pin lacks, for a CUDA
    without GPUs, and for a new name that is malformed or in use.
    """

    def __init__(
        self,
        matrix: Matrix,
        name: str,
        wanted: NewVersions,
        *,
        beside: str = "",
        pin: Pin | None = None,
    ) -> None:
        for _, what in misfits(beside, field_types.Key) if beside else ():
            raise BuildPytorchError(f"name of the release: {what}")
        if beside in matrix.releases:
            raise BuildPytorchError(f'release "{beside}" exists already; choose another name')
        self.matrix, self.name, self.beside = matrix, name, beside
        self.old = matrix.releases[name]
        self.values: dict[Trail, MovedValue] = {}
        self.pins: dict[str, Pin] = {}
        self.place: Trail = ("release", beside or name)
        self.wanted = wanted
        self.todo: list[str] = []
        self.unknown: list[str] = []
        """What nobody knows of the pin, and the release needs."""
        self._asked = pin
        if wanted.cuda and self.old.cuda is None:
            raise BuildPytorchError(f"--cuda: release {name} has no CUDA")
        self._known = {**known_hardware.load().pin, **matrix.pins}
        self._move_pin()
        if wanted.commit:
            self._move_commit(wanted.commit)
        else:
            self._move_torch()
        for companion in wanted.without:
            self._leave_out(companion, "as --without says")
        self._move_cuda()
        self._check_python()
        if wanted.python:
            self.set(f"Python {wanted.python}", ("python",), version=wanted.python)
        self._move_names()

    # --- the pin ---

    def _move_pin(self) -> None:
        """Choose the pin: the one that is wanted, or one with the wanted versions."""
        nixpkgs = self.old.nixpkgs
        self.pin = self._wanted_pin() if self.wanted.nixpkgs else self._fitting_pin()
        if self._asked and self._asked.rev == self._known[self.pin].rev:
            self._known[self.pin] = self.pins[self.pin] = self._asked
        elif self.pin not in self.matrix.pins:
            self.pins[self.pin] = self._known[self.pin]
        if unsure := self._known[self.pin].doubts:
            ask = "`invoke prefetch --only nixpkgs` asks nixpkgs itself"
            self.todo.append(f"pin.{self.pin}, {unsure}; {ask}")
        rev, before = self._known[self.pin].rev, self.matrix.pins[nixpkgs.pin].rev
        if self.beside:
            self.set("a new release", ("nixpkgs",), pin=self.pin, retired=[])
        elif rev != before:
            if self.pin != nixpkgs.pin:
                self.set(f"nixpkgs {rev}", ("nixpkgs",), pin=self.pin)
            retired = [each for each in (*nixpkgs.retired, before) if each != rev]
            self.set(f"nixpkgs {rev}", ("nixpkgs",), retired=retired)

    def _fitting_pin(self) -> str:
        """Return the key of a pin with the wanted versions; that of the release if it has them."""
        old, own, cuda = self.old, self.old.nixpkgs.pin, self._cuda
        fitting = [k for k, pin in self._known.items() if not cuda or cuda in pin.cuda.values()]
        if old.torch.is_of_pin:
            torch = self.wanted.torch or old.torch.version
            native = [key for key in fitting if self._known[key].torch == torch]
            if self.wanted.torch and not native:
                return own
            fitting = native or fitting
        if own in fitting or not fitting:
            return own

        def newest(key: str) -> tuple[tuple[int, ...], bool, bool]:
            """Rank pins: preferably one that the matrix has, or one whose hash is known."""
            pin = self._known[key]
            return numbers(pin.torch), key in self.matrix.pins, bool(pin.sha256)

        return max(fitting, key=newest)

    def _wanted_pin(self) -> str:
        """Return the key of the pin with the wanted key or revision.

        A pin of its own gets a new revision; one that another release uses stays.
        """
        rev, own = self.wanted.nixpkgs or "", self.old.nixpkgs.pin
        for key, known in self._known.items():
            if rev in {key, known.rev}:
                return key
        if not is_revision(rev):
            allowed = "40 hex digits of a revision, key of a pin, or stable, lts, unstable of Flox"
            raise BuildPytorchError(f'--nixpkgs: found "{rev[:40]}"; allowed: {allowed}')
        users = [name for name, it in self.matrix.releases.items() if it.nixpkgs.pin == own]
        self.unknown += [] if self._asked else [CONTENTS]
        changed = {"rev": rev, "sha256": "", "sha256_of": "", "date": "not known"}
        pin = structs.replace(self.matrix.pins[own], **changed, unconfirmed=None)
        pin = self._asked or pin_facts.assumed(self.matrix, pin, own)
        if users == [self.name] and not self.beside:
            self.set(f"nixpkgs {rev}", ("pin", own), rev=rev, date=pin.date, unconfirmed=None)
            key = own
        else:
            key = self.beside or self.name
            while key in self._known:
                key += "_new"
        self._known[key] = self.pins[key] = pin
        return key

    # --- what follows from it ---

    @property
    def _cuda(self) -> str:
        """The version of CUDA after the move; empty without CUDA."""
        return self.wanted.cuda or (self.old.cuda.version if self.old.cuda else "")

    def _move_commit(self, commit: NightlyCommit) -> None:
        """Set the commit of a nightly, with the Triton that its source names."""
        torch = self.old.torch
        if (torch.version, torch.rev) == (commit.version, commit.rev):
            return
        reason, rev = f"PyTorch {commit.version}", commit.triton_rev
        self.set(reason, ("torch",), version=commit.version, rev=commit.rev, hash="", hash_of="")
        self.set(reason, ("torch",), triton_rev=rev)
        self.todo += (
            "a build stops at once for texts that nixpkgs replaces and this source lacks",
            f"compare the Triton of the pin with {commit.triton_rev}, for torch.compile",
        )

    def _move_torch(self) -> None:
        """Set the source of PyTorch and of its companions: those of the pin where it has them."""
        torch, wanted = self.old.torch, self.wanted.torch
        native = self._known[self.pin].torch
        version = wanted or (native if torch.is_of_pin else torch.version)
        moves = (wanted or self.wanted.nixpkgs) and not self.unknown
        is_of_pin = version == native and bool(torch.is_of_pin or moves)
        if version == torch.version and is_of_pin == torch.is_of_pin:
            return
        self.todo.append("check whether the new PyTorch still needs each fix of the build notes")
        if self.old.notes and not self.beside:
            self.todo.append("update the page of build notes: it has the old version")
        for place, source in self.old.sources.items():
            name = place[-1]
            its = version if source is torch else version_for(version, name)
            if its is None:
                self._leave_out(name, f"no version for PyTorch {version} is known")
                continue
            self.set(f"PyTorch {version}", place, **_source(name, source, its, is_of_pin))
            keeps = isinstance(source, Companion) and source.patches == "keep"
            if keeps and not (source.is_of_pin or is_of_pin):
                self.todo.append(f"check whether the patches of nixpkgs apply to {name} {its}")

    def _leave_out(self, name: str, why: str) -> None:
        """Leave out a companion. Raises BuildPytorchError if the release has none of this name."""
        if name not in (has := self.old.companion.packages):
            there = f"there are {', '.join(has)}" if has else "it has none"
            raise BuildPytorchError(f'--without "{name}": no companion of {self.name}; {there}')
        place = (*self.place, "companion", name)
        self.values = {trail: each for trail, each in self.values.items() if trail[:-1] != place}
        self.set(f"left out, {why}", ("companion",), **{name: _LEFT_OUT})

    def _move_cuda(self) -> None:
        """Set the CUDA and the package set that has it; a set that the pin lacks is assumed."""
        old, version = self.old.cuda, self._cuda
        if old is None:
            return
        reason = f"CUDA {version}"
        sets = [name for name, found in self._known[self.pin].cuda.items() if found == version]
        package_set = old.package_set if old.package_set in sets else sets[-1] if sets else ""
        if not package_set:
            self._lacks(f"CUDA {version}", self._known[self.pin].cuda.values())
            package_set = f"cudaPackages_{underscored(version)}"
            self.set(reason, ("pin", self.pin, "cuda"), **{package_set: version})
        if package_set != old.package_set:
            self.set(reason, ("cuda",), package_set=package_set)
        if broken := self._known[self.pin].cuda_facts(package_set).unforgiven:
            what = f"nixpkgs marks torch as broken on {package_set} of pin.{self.pin}"
            fix = "--nixpkgs REV moves to another one"
            raise BuildPytorchError(f"{what}: {'; '.join(broken)}; {fix}")
        if version == old.version:
            return
        self.set(reason, ("cuda",), version=version)
        if version in known_hardware.load().cuda:
            self.set(reason, ("cuda",), driver=None, source=None, checked=None)
        else:
            at = f"release.{self.beside or self.name}.cuda.driver"
            self.set(reason, ("cuda",), driver=old.driver)
            self.todo.append(f"check the oldest driver of CUDA {version}: {at} is unchanged")
        self.todo.append(f"check that the rules fit CUDA {version}")
        if not self.beside:
            self.todo.append("check the name of the release's tables: it may contain the old CUDA")

    def _check_python(self) -> None:
        """Check that the pin has packages for the Python."""
        pin, version = self._known[self.pin], self.wanted.python or self.old.python.version
        releases = () if self._asked else self.matrix.releases.values()
        known = [r.python.version for r in releases if r.nixpkgs.pin == self.pin]
        known += pin.facts.pythons if pin.facts else ()
        if version not in {pin.python, *known}:
            self._lacks(f"Python {version}", known)

    def _lacks(self, what: str, known: Iterable[str]) -> None:
        """Note that a pin may lack a version. Raises BuildPytorchError if it is known to."""
        if not self._asked:
            self.unknown.append(what)
            return
        others = listed(dict.fromkeys(known)) or "none"
        has = f"nixpkgs {self._asked.rev} has no {what}: {others}"
        raise BuildPytorchError(f"{has}; --nixpkgs REV moves to another one")

    def _move_names(self) -> None:
        """Set names that contain versions; those with placeholders follow by themselves.

        Those of a clean-up list belong to the old release alone.
        """
        texts: dict[Trail, str] = {}
        for name in filter(None, (self.old.like, self.name)):
            names = matrix_reader.own_values(self.matrix.text, name).get("names", {})
            texts |= {("names", field): text for field, text in names.items()}
        if not self.beside:
            for index, entry in enumerate(self.old.cleanup):
                if entry.action != "delete":
                    texts["cleanup", index, "file"] = entry.file
        for (*table, key), text in texts.items():
            new = text
            for was, now in self._renamed():
                new = new.replace(was, now)
            if new != text:
                self.set("names contain the versions", tuple(table), **{str(key): new})

    def _renamed(self) -> list[tuple[str, str]]:
        """Return the parts of names that contain versions which change, old and new."""
        old, torch = self.old, self.values.get((*self.place, "torch", "version"))
        new_torch = str(torch.value) if torch else None
        old_cuda = old.cuda.version if old.cuda else ""
        versions: list[tuple[str, str | None, Callable[[str], str]]] = [
            (
                old.torch.version,
                new_torch,
                lambda version: f"torch{digits(minor_version(version))}",
            ),
            (old.torch.version, new_torch, minor_version),
            (old_cuda, self.wanted.cuda, lambda version: f"cuda{underscored(version)}"),
            (old_cuda, self.wanted.cuda, lambda version: f"cuda{numbers(version)[0]}"),
            (old.python.version, self.wanted.python, lambda version: f"python{digits(version)}"),
        ]
        return [(spelled(was), spelled(now)) for was, now, spelled in versions if now]

    # --- the text ---

    def reasons(self) -> Iterator[str]:
        """Yield each reason with the tables whose values change for it."""
        tables: dict[str, dict[str, None]] = {}
        for trail, moved in self.values.items():
            below = trail[len(self.place) :] if trail[0] == "release" else trail
            table = below if moved.value == _LEFT_OUT else below[:-1]
            steps = [step for step in table if isinstance(step, str)] or below
            tables.setdefault(moved.reason, {})[".".join(map(str, steps))] = None
        for reason, names in tables.items():
            yield f"{reason}: {', '.join(names)}"

    def set(self, reason: str, table: Trail, **values: Value) -> None:
        """Set values of a table of the release, or of a pin."""
        place = table if table[:1] == ("pin",) else (*self.place, *table)
        for key, value in values.items():
            self.values[*place, key] = MovedValue(value, reason)

    def text(self) -> str:
        """Return the text of the matrix after the move. Raises MatrixError."""
        text = self.matrix.text
        for key, pin in self.pins.items():
            if key in self.matrix.pins:
                text = pin_facts.written(text, key, pin)
            else:
                text = matrix_editor.with_table(text, ("pin", key), pin_facts.table(pin))
        changes = {trail: moved.value for trail, moved in self.values.items()}
        if self.beside:
            facts = {trail: value for trail, value in changes.items() if trail[0] == "pin"}
            return self._with_release(matrix_editor.with_values(text, facts))
        for trail in [trail for trail, value in changes.items() if value == _LEFT_OUT]:
            text = toml_lines.without_table(text, trail)
            if not self.old.like:
                del changes[trail]
        return matrix_editor.edited(text, changes)

    def _with_release(self, text: str) -> str:
        """Return a text of the matrix with the new release.

        It has the groups of the old one, without what its CUDA does not compile for.
        """
        matrix, table, groups = self.matrix, self._table(), self._groups()
        text = matrix_editor.with_table(text, self.place, table)
        if groups != matrix.releases[table["like"]].group:
            for group in groups:
                header = (*self.place, "group", 0)
                text = matrix_editor.with_table(text, header, _group_table(group))
        matrix_reader.parse(text, root=matrix.root)
        return text

    def _table(self) -> dict[str, Any]:
        """Return the table of the release beside the old one, without its groups."""
        own = matrix_reader.own_values(self.matrix.text, self.name)
        kept = ("torch", "companion", "nixpkgs", "cuda", "python", "names", "build")
        values: dict[str, Any] = {
            "like": own.get("like", self.name),
            "folder": f"releases/{self.beside}/.flox/pkgs",
            "catalog": self.beside,
            "purpose": f"not written yet; made from {self.name}",
            "support": "evaluated; no build recorded here",
            **({key: own[key] for key in kept if key in own} if "like" in own else {}),
        }
        for (kind, _, *parents, last), moved in self.values.items():
            if kind == "release":
                place = values
                for step in parents:
                    place = place.setdefault(str(step), {})
                if moved.value is None:
                    place.pop(str(last), None)
                else:
                    place[str(last)] = moved.value
        return values

    def _groups(self) -> tuple[Group, ...]:
        """Return the groups of the release; all of them if its CUDA compiles for all its GPUs."""
        old, gpus = self.old, self.matrix.gpus
        cuda = old.cuda and structs.replace(old.cuda, version=self._cuda)
        kept = []
        for group in old.group:
            keys = tuple(
                key
                for key in group.gpu
                if compiles(cuda, gpus[key]) and group.platform in gpus[key].hosts
            )
            if keys or group.kind != "gpu":
                kept.append(structs.replace(group, gpu=keys, folder=None))
        is_same = [group.gpu for group in kept] == [group.gpu for group in old.group]
        return old.group if is_same else tuple(kept)


def _source(name: str, source: PackageSource, version: str, is_of_pin: bool) -> dict[str, Value]:
    """Return the changed keys of a source; `is_of_pin`: the pin has the PyTorch itself."""
    if is_of_pin:
        others = () if source.is_of_pin else (*_OF_GITHUB, "patches")
        changed = {} if source.is_of_pin else {"source": "nixpkgs"}
        return {"version": version, **changed, **dict.fromkeys(others)}
    values: dict[str, Value] = {"version": version, "rev": f"v{version}"}
    if source.is_of_pin:
        owner, repo = repository_of(name)
        values |= {"source": "github", "owner": owner, "repo": repo}
        values |= {"submodules": True} if name == "torch" else {}
    return {**values, "hash": "", "hash_of": ""}


def _group_table(group: Group) -> dict[str, Any]:
    """Return a group as a table, without what is empty; its title comes first."""
    table: dict[str, Any] = msgspec.to_builtins(group)
    order = dict.fromkeys(("title", "kind", "platform", "gpu", "cpu", *table))
    return {key: table[key] for key in order if table[key] not in (None, False, (), [])}
