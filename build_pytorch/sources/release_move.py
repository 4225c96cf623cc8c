"""One move of a release: new versions in, changed values of matrix.toml out, each with its reason.

Pure. `invoke bump` writes the values over the release; `invoke add release` and `invoke bump --as`
write them beside it, into a new release that is like it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import digits, is_revision, minor_version, numbers, underscored
from build_pytorch.matrix import field_types, known_hardware, matrix_editor, matrix_reader
from build_pytorch.matrix.companion_versions import repository_of, version_for
from build_pytorch.matrix.matrix_editor import Value
from build_pytorch.matrix.matrix_errors import explain
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import CudaToolkit, PackageSource, Pin
from build_pytorch.matrix.tables import Trail
from build_pytorch.sources.nightly import NightlyCommit


class NewVersions(Struct, frozen=True, kw_only=True):
    """The versions to move to. What is None stays as it is."""

    torch: field_types.Version | None = None
    nixpkgs: str | None = None  #: a revision, or the key of a pin
    cuda: field_types.CudaVersion | None = None
    python: field_types.Version | None = None
    commit: NightlyCommit | None = None  #: the new source of a nightly

    @property
    def words(self) -> str:
        """The versions, in words."""
        if self.commit:
            return f"{self.commit.version} {self.commit.rev}"
        given = {name: getattr(self, name) for name in ("torch", "nixpkgs", "cuda", "python")}
        return " and ".join(f"{name} {version}" for name, version in given.items() if version)


def new_versions(**versions: str) -> NewVersions:
    """Return the versions that are not empty. Raises BuildPytorchError for a malformed one."""
    given = {name: version for name, version in versions.items() if version}
    try:
        return msgspec.convert(given, NewVersions)
    except msgspec.ValidationError as error:
        (name,), what = explain(error, given, NewVersions)[0]
        raise BuildPytorchError(f"--{name}: {what}") from None


def new_name(name: str) -> str:
    """Return the key of a new release. Raises BuildPytorchError for a malformed one."""
    try:
        return msgspec.convert(name, field_types.Key)
    except msgspec.ValidationError:
        what = f'found "{name[:60]}"; allowed: a-z, 0-9 and _ (a dot breaks Flox)'
        raise BuildPytorchError(f"name of the release: {what}") from None


class MovedValue(Struct, frozen=True):
    """A changed value of matrix.toml."""

    value: Value
    reason: str


class ReleaseMove:
    """The changed values of a release; with `beside`, those of a new release that is like it.

    Raises BuildPytorchError for versions that are not known, and for a CUDA without GPUs.
    """

    def __init__(self, matrix: Matrix, name: str, wanted: NewVersions, *, beside: str = "") -> None:
        self.matrix, self.name, self.wanted, self.beside = matrix, name, wanted, beside
        self.old = matrix.releases[name]
        self.values: dict[Trail, MovedValue] = {}
        """Changed values, by their path below the table of the release."""
        self.pins: dict[str, dict[str, Any]] = {}
        """The tables of pins that the matrix lacks."""
        self.facts: dict[Trail, MovedValue] = {}
        """Changed values of pins that the matrix has."""
        self.todo: list[str] = []
        """What a person has to fill in or to check."""
        if wanted.cuda and self.old.cuda is None:
            raise BuildPytorchError(f"--cuda: release {name} has no CUDA")
        self._pins = {**known_hardware.load().pin, **matrix.pins}
        self.pin = self._chosen_pin()
        if wanted.commit:
            self._move_commit(wanted.commit)
        else:
            self._move_torch()
        self._move_pin()
        if self.old.cuda:
            self._move_cuda(self.old.cuda)
        if wanted.python:
            self._set(("python", "version"), wanted.python, f"Python {wanted.python}")
        self._move_names()
        if not beside:
            self._move_files()
        self.todo.append("build one variant before the others")

    def over(self) -> str:
        """Return the text of the matrix with the release moved. Raises MatrixError."""
        changes = {("release", self.name, *trail): it.value for trail, it in self.values.items()}
        return matrix_editor.edited(self.with_pins(self.matrix.text), changes)

    def with_pins(self, text: str) -> str:
        """Return a text of the matrix with new pins and facts about those that it has."""
        place: Trail = ("pin", list(self.matrix.pins)[-1])
        for key, values in self.pins.items():
            text = matrix_editor.with_table(text, ("pin", key), values, place)
        facts = {trail: moved.value for trail, moved in self.facts.items()}
        return matrix_editor.with_values(text, facts)

    def table(self) -> dict[str, Any]:
        """Return the table of the release beside the old one, without its groups."""
        own = matrix_reader.own_values(self.matrix.text, self.name)
        kept = ("torch", "companion", "nixpkgs", "cuda", "python", "names", "build", "setting")
        values: dict[str, Any] = {
            "like": own.get("like", self.name),
            "folder": f"releases/{self.beside}/.flox/pkgs",
            "catalog": self.beside,
            "purpose": f"not written yet; made from {self.name}",
            "support": "evaluated; no build recorded here",
            **({key: own[key] for key in kept if key in own} if "like" in own else {}),
            **({"manual": []} if self.old.manual else {}),
        }
        for (*parents, last), moved in self.values.items():
            place = values
            for step in parents:
                place = place.setdefault(str(step), {})
            place[str(last)] = moved.value
        return values

    def reasons(self) -> Iterator[str]:
        """Yield each reason with the tables whose values change for it."""
        tables: dict[str, dict[str, None]] = {}
        for trail, moved in (*self.values.items(), *self.facts.items()):
            steps = [step for step in trail[:-1] if isinstance(step, str)] or trail
            tables.setdefault(moved.reason, {})[".".join(map(str, steps))] = None
        for reason, names in tables.items():
            yield f"{reason}: {', '.join(names)}"

    def _set(self, trail: Trail, value: Value, reason: str) -> None:
        self.values[trail] = MovedValue(value, reason)

    # --- the pin ---

    def _chosen_pin(self) -> str:
        """Return the key of the pin: the one that is wanted, or one with the wanted versions.

        A pin of its own may get another revision; one that another release uses stays.
        """
        wanted, old, own = self.wanted, self.old, self.old.nixpkgs.pin
        cuda = wanted.cuda or (old.cuda.version if old.cuda else "")
        if wanted.nixpkgs:
            known = [k for k, pin in self._pins.items() if wanted.nixpkgs in {k, pin.rev}]
            return known[0] if known else self._pin_at(wanted.nixpkgs, cuda)
        with_cuda = [k for k, pin in self._pins.items() if not cuda or cuda in pin.cuda.values()]
        fitting = with_cuda
        if old.torch.is_of_pin:
            torch = wanted.torch or old.torch.version
            native = [key for key in with_cuda if self._pins[key].torch == torch]
            fitting = native or ([] if wanted.torch else with_cuda)
            fitting = fitting or [own, *with_cuda]
        if own in fitting or not fitting:
            return own
        # The newest, preferably one that the matrix has, or one whose hash is known.
        return max(
            fitting,
            key=lambda key: (
                numbers(self._pins[key].torch),
                key in self.matrix.pins,
                bool(self._pins[key].sha256),
            ),
        )

    def _pin_at(self, rev: str, cuda: str) -> str:
        """Return the key of the pin with a revision that nobody knows yet."""
        if not is_revision(rev):
            allowed = "a full Git revision, 40 hex digits, or the key of a pin"
            raise BuildPytorchError(f'--nixpkgs: found "{rev[:40]}"; allowed: {allowed}')
        own, old, torch = self.old.nixpkgs.pin, self.old, self.wanted.torch
        users = [name for name, it in self.matrix.releases.items() if it.nixpkgs.pin == own]
        changed = {"torch": torch} if torch and old.torch.is_of_pin else {}
        if users == [self.name] and not self.beside:
            reason = f"nixpkgs {rev}"
            for key, value in {"rev": rev, **changed}.items():
                self.facts["pin", own, key] = MovedValue(value, reason)
            self._pins[own] = msgspec.structs.replace(self._pins[own], rev=rev, **changed)
            facts = f"torch, python, cuda and has of pin.{own}"
            self.todo.append(f"check {facts}: they describe the earlier revision")
            return own
        new = self.beside or self.name
        while new in self._pins:
            new += "_new"
        pin = self.matrix.pins[own]
        package_set = f"cudaPackages_{underscored(cuda)}"
        if old.cuda and old.cuda.version == cuda:
            package_set = old.cuda.package_set
        self.pins[new] = {
            "rev": rev,
            "fetcher": "fetchTarball",
            "sha256": "",
            "sha256_of": "",
            "date": "not known",
            "torch": pin.torch,
            "python": pin.python,
            **changed,
            **({"cuda": {package_set: cuda}} if cuda else {}),
            "source": f"assumed for release {self.beside or self.name}",
            "checked": pin.checked,
            "unconfirmed": "any of these versions",
        }
        self._pins[new] = msgspec.convert(self.pins[new], Pin)
        return new

    def _move_pin(self) -> None:
        key, nixpkgs = self.pin, self.old.nixpkgs
        pin, before = self._pins[key], self.matrix.pins[nixpkgs.pin]
        if key not in self.matrix.pins and key not in self.pins:
            self.pins[key] = known_hardware.load().table("pin", key)
        for added, values in self.pins.items():
            if unconfirmed := values.get("unconfirmed"):
                self.todo.append(f"pin.{added}, not confirmed: {unconfirmed}")
        if self.beside:
            self._set(("nixpkgs", "pin"), key, "a new release")
            self._set(("nixpkgs", "retired"), [], "a new release")
        elif pin.rev != before.rev:
            reason = f"nixpkgs {pin.rev}"
            if key != nixpkgs.pin:
                self._set(("nixpkgs", "pin"), key, reason)
            retired = [rev for rev in (*nixpkgs.retired, before.rev) if rev != pin.rev]
            self._set(("nixpkgs", "retired"), retired, reason)

    # --- what follows from it ---

    def _move_commit(self, commit: NightlyCommit) -> None:
        """Set the commit of a nightly, with the Triton that its source names."""
        torch, triton = self.old.torch, self.old.companion.triton
        if (torch.version, torch.rev) == (commit.version, commit.rev):
            return
        values = {"version": commit.version, "rev": commit.rev, "hash": "", "hash_of": ""}
        reason = f"PyTorch {commit.version}"
        for key, value in {**values, "triton_rev": commit.triton_rev}.items():
            self._set(("torch", key), value, reason)
        if triton and not triton.is_of_pin:
            for key, value in {"rev": commit.triton_rev, "hash": "", "hash_of": ""}.items():
                self._set(("companion", "triton", key), value, reason)
        self.todo += (
            "build one variant: texts that nixpkgs replaces and this source lacks stop it at once",
            f"compare the Triton of the pin with {commit.triton_rev}, for torch.compile",
        )

    def _move_torch(self) -> None:
        """Set the source of PyTorch and of its companions: those of the pin where it has them."""
        torch, wanted = self.old.torch, self.wanted
        native = self._pins[self.pin].torch
        is_of_pin = torch.is_of_pin and wanted.torch in {None, native}
        version = native if is_of_pin else wanted.torch or torch.version
        if version == torch.version and is_of_pin == torch.is_of_pin:
            return
        for place, source in self.old.sources.items():
            name = str(place[-1])
            its = version if source is torch else version_for(version, name)
            if its is None:
                what = f"--torch: no version of {name} is known for PyTorch {version}"
                fix = "add it to build_pytorch/matrix/companion_versions.toml, or remove"
                at = f"release.{self.name}.{'.'.join(place)}"
                raise BuildPytorchError(f"{what}; {fix} {at}")
            for key, value in _source(name, source, its, is_of_pin=is_of_pin).items():
                self._set((*place, key), value, f"PyTorch {version}")
        self._check_torch(version, is_of_pin=is_of_pin)

    def _check_torch(self, version: str, *, is_of_pin: bool) -> None:
        self.todo += (
            "check whether the new PyTorch still needs each fix of the build notes",
            "update the prose of the build notes, which names the old version",
        )
        if not is_of_pin:
            self.todo.append(f"check whether the nixpkgs pin has PyTorch {version} itself")
        for name, source in self.old.companion.packages.items():
            if source.patches == "keep" and not (source.is_of_pin or is_of_pin):
                its = version_for(version, name)
                self.todo.append(f"check whether the patches of nixpkgs apply to {name} {its}")

    def _move_cuda(self, old: CudaToolkit) -> None:
        """Set the CUDA and the package set that has it; a set that the pin lacks is assumed."""
        version, pin = self.wanted.cuda or old.version, self._pins[self.pin]
        sets = [name for name, found in pin.cuda.items() if found == version]
        package_set = old.package_set if old.package_set in sets else sets[-1] if sets else ""
        reason = f"CUDA {version}"
        if not package_set:
            package_set = f"cudaPackages_{underscored(version)}"
            self.facts["pin", self.pin, "cuda", package_set] = MovedValue(version, reason)
        if package_set != old.package_set:
            self._set(("cuda", "package_set"), package_set, reason)
        if version == old.version:
            return
        self._set(("cuda", "version"), version, reason)
        if known := known_hardware.load().cuda.get(version):
            for key in ("driver", "source", "checked"):
                self._set(("cuda", key), getattr(known, key), reason)
        else:
            at = f"release.{self.beside or self.name}.cuda.driver"
            self.todo.append(f"check the oldest driver of CUDA {version}: {at} is unchanged")
        self.todo.append(f"check that the rules fit CUDA {version}")
        if not self.beside:
            self.todo.append("check the name of the release's tables: it may contain the old CUDA")

    def _renamed(self) -> list[tuple[str, str]]:
        """Return the parts of names that contain versions which change, old and new."""
        old, pairs = self.old, []
        torch = self.values.get(("torch", "version"))
        if torch:
            new = digits(minor_version(str(torch.value)))
            pairs.append((f"torch{digits(minor_version(old.torch.version))}", f"torch{new}"))
        if self.wanted.cuda and old.cuda:
            was, now = underscored(old.cuda.version), underscored(self.wanted.cuda)
            pairs.append((f"cuda{was}", f"cuda{now}"))
        if self.wanted.python:
            was, now = digits(old.python.version), digits(self.wanted.python)
            pairs.append((f"python{was}", f"python{now}"))
        return pairs

    def _move_names(self) -> None:
        """Set names that contain versions; those with placeholders follow by themselves."""
        written: dict[str, str] = {}
        for name in (self.old.like, self.name):
            if name:
                written |= matrix_reader.own_values(self.matrix.text, name).get("names", {})
        for field, value in written.items():
            new = value
            for was, now in self._renamed():
                new = new.replace(was, now)
            if new != value:
                self._set(("names", field), new, "names contain the versions")

    def _move_files(self) -> None:
        """Set the names of recipes in the clean-up list and of the page of build notes."""
        for index, entry in enumerate(self.old.cleanup):
            file = entry.file
            for was, now in self._renamed():
                file = file.replace(was, now)
            if entry.action != "delete" and file != entry.file:
                self._set(("cleanup", index, "file"), file, "names contain the versions")
        notes, cuda = self.old.notes or "", self.old.cuda
        torch = self.values.get(("torch", "version"))
        if torch:
            old = minor_version(self.old.torch.version)
            notes = notes.replace(old, minor_version(str(torch.value)))
        if self.wanted.cuda and cuda:
            majors = [numbers(version)[0] for version in (cuda.version, self.wanted.cuda)]
            notes = notes.replace(f"cuda{majors[0]}", f"cuda{majors[1]}")
        if notes != (self.old.notes or ""):
            self._set(("notes",), notes, "names contain the versions")


def _source(
    name: str, source: PackageSource, version: str, *, is_of_pin: bool
) -> dict[str, str | bool]:
    """Return the changed keys of a source; `is_of_pin`: the pin has the PyTorch itself."""
    if is_of_pin and source.is_of_pin:
        return {"version": version}
    values: dict[str, str | bool] = {"version": version, "rev": f"v{version}"}
    if source.is_of_pin:
        owner, repo = repository_of(name)
        values |= {"source": "github", "owner": owner, "repo": repo}
        values |= {"submodules": True} if name == "torch" else {}
    return {**values, "hash": "", "hash_of": ""}
