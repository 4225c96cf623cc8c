"""A new release made from another one: its pin, versions, names and groups. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import digits, is_revision, minor_version, numbers, underscored
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.companion_versions import version_for
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import Pin
from build_pytorch.matrix.tables import Group, Release

_REPOSITORIES: Final = {
    "torchvision": {"owner": "pytorch", "repo": "vision"},
    "torchaudio": {"owner": "pytorch", "repo": "audio"},
    "triton": {"owner": "triton-lang", "repo": "triton"},
}


class ReleaseWish(Struct, frozen=True, kw_only=True):
    """What a new release has in place of the values of another one; empty: the same."""

    torch: str = ""
    cuda: str = ""
    python: str = ""
    nixpkgs: str = ""
    """A revision, or the key of a pin."""


class ReleaseAddition:
    """A new release that has the values of another one where the wish says nothing."""

    def __init__(self, matrix: Matrix, name: str, like: str, wish: ReleaseWish) -> None:
        self.matrix, self.name, self.like, self.wish = matrix, name, like, wish
        self.old = matrix.releases[like]
        self.base = matrix_reader.inherits(matrix.text, like) or like
        """The release that has no `like` itself."""
        self.pins: dict[str, dict[str, Any]] = {}
        """The tables of pins that the matrix lacks."""
        self.todo: list[str] = []
        """What a person has to fill in or to check."""
        self._pins = {**known_hardware.load().pin, **matrix.pins}

    def table(self) -> dict[str, Any]:
        """Return the table of the release without its groups. Raises BuildPytorchError."""
        old, wish = self.old, self.wish
        cuda = wish.cuda or (old.cuda.version if old.cuda else "")
        if wish.cuda and old.cuda is None:
            raise BuildPytorchError(f"--cuda: release {self.like} has no CUDA")
        pin, torch, is_of_pin = self._pin(cuda)
        values: dict[str, Any] = {
            "like": self.base,
            "folder": f"releases/{self.name}/.flox/pkgs",
            "catalog": self.name,
            "purpose": f"not written yet; made from {self.like}",
            "support": "evaluated; no build recorded here",
            **self._own_values(),
        }
        base = self.matrix.releases[self.base]
        source = self._torch(torch, is_of_pin=is_of_pin)
        if any(source[key] != getattr(base.torch, key) for key in source):
            values["torch"] = source
        if companions := self._companions(base, torch, is_of_pin=is_of_pin):
            values["companion"] = companions
        values["nixpkgs"] = {"pin": pin, "retired": []}
        if old.cuda:
            table = self._cuda(cuda, pin)
            if any(table[key] != getattr(base.cuda, key, None) for key in table):
                values["cuda"] = table
        python = wish.python or old.python.version
        if python != base.python.version:
            values["python"] = {"version": python}
        if names := self._names(torch, cuda, python):
            values["names"] = names
        if old.manual:
            values["manual"] = []
        return values

    def _companions(self, base: Release, torch: str, *, is_of_pin: bool) -> dict[str, Any]:
        """Return the tables of companions that a PyTorch changes. Raises BuildPytorchError."""
        changed: dict[str, Any] = {}
        for place, source in base.sources.items():
            name = place[-1]
            if source is base.torch or torch == base.torch.version:
                continue
            version = version_for(torch, name)
            if version is None:
                what = f"no version of {name} is known for PyTorch {torch}"
                raise BuildPytorchError(
                    f"{what}; add it to build_pytorch/matrix/companion_versions.toml"
                )
            changed[name] = {"version": version}
            if is_of_pin and source.is_of_pin:
                continue
            changed[name] |= {"source": "github", "rev": f"v{version}", "hash": "", "hash_of": ""}
            changed[name] |= _REPOSITORIES[name] if source.is_of_pin else {}
        return changed

    def _own_values(self) -> dict[str, Any]:
        """Return what the other release has of its own beside the release that it is like."""
        own = matrix_reader.own_values(self.matrix.text, self.like)
        kept = ("build", "setting") if "like" in own else ()
        return {key: own[key] for key in kept if key in own}

    def _pin(self, cuda: str) -> tuple[str, str, bool]:
        """Return a pin with the CUDA, the version of PyTorch, and whether it is that of the pin."""
        old, wish, pins = self.old, self.wish, self._pins
        torch = wish.torch or old.torch.version
        if wish.nixpkgs:
            key = next((k for k, it in pins.items() if wish.nixpkgs in {k, it.rev}), "")
            if not key:
                key = self._new_pin(torch, cuda)
            self._use(key)
            native = pins[key].torch
            if old.torch.is_of_pin and wish.torch in {"", native}:
                return key, native, True
            return key, torch, False
        own = old.nixpkgs.pin
        order = [own, *self.matrix.pins, *pins]
        with_cuda = [k for k in dict.fromkeys(order) if not cuda or cuda in pins[k].cuda.values()]
        # The newest, preferably one that the matrix has, or one whose hash is known.
        with_cuda.sort(
            key=lambda k: (numbers(pins[k].torch), k in self.matrix.pins, bool(pins[k].sha256)),
            reverse=True,
        )
        native_pins = [own] if own in with_cuda and pins[own].torch == torch else []
        native_pins += [key for key in with_cuda if pins[key].torch == torch]
        if old.torch.is_of_pin and not wish.torch:
            native_pins += with_cuda
        if old.torch.is_of_pin and native_pins:
            self._use(native_pins[0])
            return native_pins[0], pins[native_pins[0]].torch, True
        if own in with_cuda or not with_cuda:
            return own, torch, False  # consistency reports a CUDA that the pin does not have
        self._use(with_cuda[0])
        return with_cuda[0], torch, False

    def _new_pin(self, torch: str, cuda: str) -> str:
        rev = self.wish.nixpkgs
        if not is_revision(rev):
            allowed = "a revision of 40 hex digits or the key of a pin"
            raise BuildPytorchError(f'--nixpkgs: found "{rev[:40]}"; allowed: {allowed}')
        old, pin = self.old, self.matrix.pins[self.old.nixpkgs.pin]
        package_set = f"cudaPackages_{underscored(cuda)}"
        values: dict[str, Any] = {
            "rev": rev,
            "fetcher": "fetchTarball",
            "sha256": "",
            "sha256_of": "",
            "date": "not known",
            "torch": torch if old.torch.is_of_pin else pin.torch,
            "python": pin.python,
            **({"cuda": {package_set: cuda}} if cuda else {}),
            "source": f"assumed for release {self.name}",
            "checked": pin.checked,
            "unconfirmed": "any of these versions",
        }
        self.pins[self.name] = values
        self._pins[self.name] = msgspec.convert(values, Pin)
        return self.name

    def _use(self, key: str) -> None:
        """Remember a known pin that the matrix lacks."""
        if key not in self.matrix.pins and key not in self.pins:
            self.pins[key] = known_hardware.load().table("pin", key)

    def groups(self, table: Mapping[str, Any]) -> tuple[Group, ...]:
        """Return the groups without GPU architectures that the new CUDA does not compile for."""
        version, cuda = table.get("cuda", {}).get("version"), self.old.cuda
        if cuda is None or version is None:
            return self.old.group
        groups = []
        for group in self.old.group:
            new = msgspec.structs.replace(cuda, version=version)
            gpus = tuple(key for key in group.gpu if compiles(new, self.matrix.gpus[key]))
            if gpus or group.kind != "gpu":
                groups.append(msgspec.structs.replace(group, gpu=gpus))
        return tuple(groups)

    def _torch(self, version: str, *, is_of_pin: bool) -> dict[str, Any]:
        old = self.old.torch
        if is_of_pin:
            return {"version": version, "source": "nixpkgs"}
        if not old.is_of_pin and version == old.version:
            return msgspec.to_builtins(old)  # type: ignore[no-any-return]
        return {
            "version": version,
            "source": "github",
            "owner": old.owner or "pytorch",
            "repo": old.repo or "pytorch",
            "rev": f"v{version}",
            "submodules": True,
            "hash": "",
            "hash_of": "",
        }

    def _cuda(self, version: str, pin: str) -> dict[str, Any]:
        old, pins = self.old.cuda, self._pins
        sets = [name for name, found in pins[pin].cuda.items() if found == version]
        package_set = (sets or [f"cudaPackages_{underscored(version)}"])[-1]
        if old and old.version == version and old.package_set in sets:
            package_set = old.package_set
        known = known_hardware.load().cuda.get(version)
        table = {"version": version, "package_set": package_set}
        if known:
            return {
                **table,
                "driver": known.driver,
                "source": known.source,
                "checked": known.checked,
            }
        self.todo.append(f"release.{self.name}.cuda.driver: the oldest driver of it")
        return {**table, "driver": old.driver if old else ""}

    def _names(self, torch: str, cuda: str, python: str) -> dict[str, str]:
        """Return the names that have other versions, unless they follow the versions."""
        old = self.old
        was = digits(minor_version(old.torch.version))
        pairs = [
            (f"torch{was}", f"torch{digits(minor_version(torch))}"),
            (f"pytorch{was}", f"pytorch{digits(minor_version(torch))}"),
            (f"python{digits(old.python.version)}", f"python{digits(python)}"),
        ]
        if old.cuda:
            pairs.append((f"cuda{underscored(old.cuda.version)}", f"cuda{underscored(cuda)}"))
        written = matrix_reader.own_values(self.matrix.text, self.base).get("names", {})
        follows = {key for key, value in written.items() if "{" in value}
        names: dict[str, str] = msgspec.to_builtins(old.names)
        new = dict(names)
        for first, second in pairs:
            new = {key: value.replace(first, second) for key, value in new.items()}
        return {k: v for k, v in new.items() if k not in follows and v != written.get(k, names[k])}
