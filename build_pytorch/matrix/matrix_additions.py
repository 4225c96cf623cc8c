"""New GPU architectures, ISAs, variants and releases in the text of matrix.toml. Pure.

What is not in the matrix comes from known_hardware.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.base.versions import numbers
from build_pytorch.matrix import known_hardware, matrix_editor, matrix_reader, rules
from build_pytorch.matrix.compatibility import combined, compiles
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.release_addition import ReleaseAddition, ReleaseWish
from build_pytorch.matrix.selection import require_release
from build_pytorch.matrix.tables import GpuArchitecture, Group, Trail

_SEVERAL: Final = re.compile(r"sm\d{2,3}(_\d{2,3})+")
_GUIDE: Final = "docs/how-to/add-a-gpu.md describes the table"
_PLATFORMS: Final = {"x86_64-linux": "x86", "aarch64-linux": "ARM", "aarch64-darwin": "Apple"}


class Draft:
    """A matrix to which tables are added one after the other."""

    def __init__(self, matrix: Matrix) -> None:
        self.text = matrix.text
        self.todo: list[str] = []
        """What a person has to fill in or to check."""
        self._known = known_hardware.load()
        self._matrix = matrix

    @property
    def matrix(self) -> Matrix:
        """The matrix as it is now. Raises MatrixError if an addition contradicts it."""
        if self._matrix.text != self.text:
            self._matrix = matrix_reader.parse(self.text, root=self._matrix.root)
        return self._matrix

    # --- what users name ---

    def add(self, name: str, release: str = "") -> None:
        """Add a GPU architecture (sm75), an ISA (avx) or a variant (sm90-armv9, cpu-avx).

        Raises BuildPytorchError for a name without known facts and for an ambiguous release.
        """
        if "+" in name:
            fix = "companions are tables release.NAME.companion.NAME of matrix.toml"
            raise BuildPytorchError(f'"{name[:60]}": add takes no companion; {fix}')
        found, slash, rest = name.rpartition("/")
        release, word = (found if slash else release), rest
        if release:
            require_release(self.matrix, release, "" if slash else "--release")
        gpu, dash, isa = word.partition("-")
        if word == "darwin-mps":
            self._add_variant(word, release, "", "apple")
        elif dash:
            self._add_variant(word, release, "" if gpu == "cpu" else gpu, isa)
        elif word in self._known.cpu or word in self.matrix.cpus:
            self._add_isa(word, release)
        else:
            self._add_gpu(word, release)

    def add_release(
        self, name: str, like: str, wish: ReleaseWish, groups: Sequence[Group] = ()
    ) -> None:
        """Add a release that has the values of another one where the wish says nothing.

        Without `groups` it has those of the other one that its CUDA compiles for. Raises
        BuildPytorchError for a name in use, an unknown release, and versions that no pin has.
        """
        releases = self.matrix.releases
        if name in releases:
            raise BuildPytorchError(f'release "{name}" exists already; choose another name')
        require_release(self.matrix, like, "--like")
        before = set(self._ids())
        addition = ReleaseAddition(self.matrix, name, like, wish)
        table = addition.table()
        base = table["like"]
        chosen = tuple(groups) or addition.groups(table)
        self.todo += addition.todo
        for key, pin in addition.pins.items():
            self._add_pin(key, pin)
        last = list(releases)[-1]
        place: Trail = ("release", last)
        self.text = matrix_editor.with_table(self.text, ("release", name), table, place)
        if chosen != releases[base].group:
            for group in chosen:
                self._append_group(name, group)
        self._finish(before)
        self.todo.append(f"write the purpose of release.{name}: whom it is for")
        folder = self.matrix.releases[name].folder
        if folder.endswith(".flox/pkgs"):
            where = f"{folder.removesuffix('pkgs')}env/manifest.toml"
            self.todo.append(f"a Flox environment for it: {where}, as the other releases have one")

    # --- tables ---

    def ensure_gpu(self, key: str) -> GpuArchitecture:
        """Add the table of a GPU architecture if it is missing. Raises BuildPytorchError."""
        if key in self.matrix.gpus:
            return self.matrix.gpus[key]
        values = self._gpu_values(key)
        gpu = msgspec.convert(values, GpuArchitecture)
        higher = [
            other
            for other, it in self.matrix.gpus.items()
            if numbers(it.capability) > numbers(gpu.capability)
        ]
        first = next(iter(self.matrix.gpus), "")
        place: Trail = ("gpu", higher[-1] if higher else first) if first else ("gpu",)
        self.text = matrix_editor.with_table(
            self.text, ("gpu", key), values, place, before=bool(first) and not higher
        )
        known = self._known.gpu.get(key)
        if known and known.unconfirmed:
            self.todo.append(f"gpu.{key}, not confirmed: {known.unconfirmed}")
        if known and known.unsupported:
            self.todo.append(f"gpu.{key}: {known.unsupported}")
        products = ", ".join(gpu.products)
        self.todo.append(f"gpu.{key}: check products and hosts; known are {products}")
        return gpu

    def _gpu_values(self, key: str) -> dict[str, Any]:
        if key in self._known.gpu:
            return self._known.table("gpu", key)
        if _SEVERAL.fullmatch(key):
            known = {**self._known.gpu, **self.matrix.gpus}
            keys = [f"sm{code}" for code in key.removeprefix("sm").split("_")]
            for each in keys:
                if each not in known:
                    raise BuildPytorchError(f'"{key}": no facts about {each}; {_GUIDE}')
            parts = [known[each] for each in keys]
            table: dict[str, Any] = msgspec.to_builtins(combined(parts))
            return {name: value for name, value in table.items() if value}
        known_keys = [*self._known.gpu, *self._known.cpu]
        hint = near_miss(key, known_keys) or f"; known are {', '.join(known_keys)}"
        raise BuildPytorchError(f'"{key}": no facts about it{hint}; {_GUIDE}')

    def ensure_isa(self, key: str) -> None:
        """Add the table of an ISA if it is missing. Raises BuildPytorchError for an unknown one."""
        cpus = self.matrix.cpus
        if key in cpus:
            return
        if key not in self._known.cpu:
            known = list(self._known.cpu)
            hint = near_miss(key, known) or f"; known are {', '.join(known)}"
            guide = "docs/how-to/add-a-cpu-isa.md describes the table"
            raise BuildPytorchError(f'"{key}": no facts about this ISA{hint}; {guide}')
        isa = self._known.cpu[key]
        siblings = [it for it in cpus if cpus[it].platform == isa.platform] or list(cpus)
        below = [it for it in siblings if cpus[it].level < isa.level]
        place = ("cpu", (below or siblings)[-1 if below else 0])
        values = self._known.table("cpu", key)
        self.text = matrix_editor.with_table(
            self.text, ("cpu", key), values, place, before=not below
        )

    def _ensure_rules(self, variants: Sequence[Variant]) -> None:
        """Add the known rules that hold for new variants and that the matrix lacks."""
        have = {rule.id for rule in self.matrix.rules}
        raw = {rule["id"]: rule for rule in self._known.raw["rule"]}
        for rule in self._known.rule:
            if rule.id not in have and any(rules.holds(rule.when, it) for it in variants):
                values = dict(raw[rule.id])
                for condition in ("when", "until"):  # without keys that this matrix does not have
                    self._restrict(values, condition)
                last = ("rule", len(self.matrix.rules) - 1)
                self.text = matrix_editor.with_table(self.text, ("rule", 0), values, last)
                if rule.unconfirmed:
                    self.todo.append(f"rule {rule.id}, not confirmed: {rule.unconfirmed}")

    def _restrict(self, values: dict[str, Any], condition: str) -> None:
        for name, known in (("gpu", self.matrix.gpus), ("cpu", self.matrix.cpus)):
            if keys := values.get(condition, {}).get(name):
                kept = [key for key in keys if key in known]
                values[condition] = {**values[condition], name: kept}

    def _add_pin(self, key: str, values: Mapping[str, Any]) -> None:
        """Add the table of a pin."""
        last = ("pin", list(self.matrix.pins)[-1])
        self.text = matrix_editor.with_table(self.text, ("pin", key), values, last)
        if unconfirmed := values.get("unconfirmed"):
            self.todo.append(f"pin.{key}, not confirmed: {unconfirmed}")
        if not values.get("sha256"):
            self.todo.append(f"pin.{key} has no hash; run `invoke prefetch --only nixpkgs`")

    def group_of(self, variant: Variant) -> Group:
        """Return a group for a variant; its tables are added. Raises BuildPytorchError."""
        if variant.gpu_key:
            self.ensure_gpu(variant.gpu_key)
        self.ensure_isa(variant.cpu_key)
        name = next(iter(self.matrix.releases))
        return self._group(name, variant.gpu_key or "", variant.cpu.platform, [variant.cpu_key])

    # --- variants ---

    def _add_gpu(self, key: str, release: str) -> None:
        before = set(self._ids())
        gpu = self.ensure_gpu(key)
        name = self._release_for(key, gpu, release, f"{key}-")
        if not name:
            return
        known = self._known.gpu.get(key)
        limited = set(known.isas) if known else set()
        for platform in gpu.hosts:
            groups = [
                (index, group)
                for index, group in enumerate(self.matrix.releases[name].group)
                if group.kind == "gpu" and group.platform == platform
            ]
            if any(key in group.gpu for _, group in groups):
                continue
            fitting = [row for row in groups if not limited or set(row[1].cpu) <= limited]
            if fitting:
                index = max(fitting, key=lambda row: len(row[1].gpu) * len(row[1].cpu))[0]
                self._insert_gpu(name, index, key)
            elif limited or not groups:
                cpus = self.matrix.cpus
                isas = [it for it in cpus if cpus[it].platform == platform]
                isas = [it for it in isas if not limited or it in limited]
                if isas:
                    self._append_group(name, self._group(name, key, platform, isas))
        self._finish(before)

    def _add_isa(self, key: str, release: str) -> None:
        before = set(self._ids())
        self.ensure_isa(key)
        platform = self.matrix.cpus[key].platform
        found = [
            name
            for name, it in self.matrix.releases.items()
            if any(group.platform == platform for group in it.group)
            and not any(key in group.cpu for group in it.group)
        ]
        if release:
            found = [name for name in found if name == release]
        name = self._only(found, key)
        if not name:
            return
        self._own_groups(name)
        for index, group in enumerate(self.matrix.releases[name].group):
            if group.platform == platform and self._takes(group, key):
                trail: Trail = ("release", name, "group", index, "cpu")
                levels = [self.matrix.cpus[it].level for it in group.cpu]
                position = 0 if self.matrix.cpus[key].level < min(levels) else len(levels)
                self._edit(name, matrix_editor.with_element(self.text, trail, position, key))
        self._finish(before)

    def _takes(self, group: Group, key: str) -> bool:
        """Return whether hosts of all GPUs of a group have an ISA."""
        known = (self._known.gpu.get(gpu) for gpu in group.gpu)
        return not any(it and it.isas and key not in it.isas for it in known)

    def _add_variant(self, word: str, release: str, gpu_key: str, isa: str) -> None:
        before = set(self._ids())
        gpu = self.ensure_gpu(gpu_key) if gpu_key else None
        self.ensure_isa(isa)
        cpu = self.matrix.cpus[isa]
        if gpu and cpu.platform not in gpu.hosts:
            known = f"{', '.join(gpu.products)} on {' and '.join(gpu.hosts)} only"
            raise BuildPytorchError(
                f"{word}: no {cpu.platform} machine is known to have it: {known}"
            )
        name = self._release_for(word, gpu, release, word)
        if not name:
            return
        self._own_groups(name)
        kind = "gpu" if gpu else "mps" if cpu.platform.endswith("-darwin") else "cpu-only"
        for index, group in enumerate(self.matrix.releases[name].group):
            if group.kind != kind or group.platform != cpu.platform:
                continue
            if group.gpu == ((gpu_key,) if gpu_key else ()):
                trail: Trail = ("release", name, "group", index, "cpu")
                text = matrix_editor.with_element(self.text, trail, len(group.cpu), isa)
                self._edit(name, text)
                break
            if group.cpu == (isa,):
                self._insert_gpu(name, index, gpu_key)
                break
        else:
            self._append_group(name, self._group(name, gpu_key, cpu.platform, [isa]))
        self._finish(before)

    def _release_for(self, what: str, gpu: GpuArchitecture | None, release: str, start: str) -> str:
        """Return the release that gets a variant; empty if all have it. Raises for several."""
        found = []
        for name, it in self.matrix.releases.items():
            ids = [variant.short_id for variant in self.matrix.of_release(name)]
            has = any(
                id_ == start or (start.endswith("-") and id_.startswith(start)) for id_ in ids
            )
            if release and name == release and gpu and not compiles(it.cuda, gpu):
                cuda = f"CUDA {it.cuda.version}" if it.cuda else "it has no CUDA"
                until = f" to {gpu.last_cuda}" if gpu.last_cuda else " or newer"
                window = f"CUDA {gpu.first_cuda}{until}"
                raise BuildPytorchError(f"{what}: needs {window}, release {name}: {cuda}")
            if not has and (gpu is None or compiles(it.cuda, gpu)) and release in {"", name}:
                found.append(name)
        return self._only(found, what)

    def _only(self, found: Sequence[str], what: str) -> str:
        if len(found) > 1:
            fix = f"write {found[0]}/{what}" if "-" in what else f"give --release {found[0]}"
            raise BuildPytorchError(f"{what}: releases {', '.join(found)} can have it; {fix}")
        return found[0] if found else ""

    def _insert_gpu(self, name: str, index: int, key: str) -> None:
        self._own_groups(name)
        order = [numbers(self.matrix.gpus[it].capability) for it in self._gpus_of(name, index)]
        own = numbers(self.matrix.gpus[key].capability)
        is_descending = order == sorted(order, reverse=True)
        position = sum(each > own for each in order) if is_descending else len(order)
        trail: Trail = ("release", name, "group", index, "gpu")
        self._edit(name, matrix_editor.with_element(self.text, trail, position, key))

    def _edit(self, name: str, text: str) -> None:
        """Take a text with other groups of a release.

        Its clean-up list replaces files that become recipes of variants, and deletes them no more.
        """
        raw, names = matrix_reader.own_values(text, name), self._matrix.releases[name].names
        files = set()
        for group in raw.get("group", ()):
            for isa in group["cpu"]:
                files |= {
                    f"{names.package}-{names.gpu}-{g}-{isa}.nix" for g in group.get("gpu", ())
                }
                if not group.get("gpu"):
                    files.add(f"{names.package}-{names.cpu}-{isa}.nix")
        values: dict[Trail, matrix_editor.Value] = {
            ("release", name, "cleanup", index, "action"): "rewrite"
            for index, entry in enumerate(raw.get("cleanup", ()))
            if entry["action"] == "delete" and entry["file"] in files
        }
        self.text = matrix_editor.edited(text, values) if values else text

    def _gpus_of(self, name: str, index: int) -> tuple[str, ...]:
        return self.matrix.releases[name].group[index].gpu

    def _group(self, name: str, gpu: str, platform: str, isas: Sequence[str]) -> Group:
        """Return a new group with a title of its own."""
        kind = "gpu" if gpu else "mps" if platform.endswith("-darwin") else "cpu-only"
        first = self.matrix.gpus[gpu].family if gpu else "CPU-only"
        title = "Apple" if kind == "mps" else f"{first} {_PLATFORMS[platform]}"
        taken = {group.title for group in self.matrix.releases[name].group}
        if title in taken:
            title = f"{title}, {gpu or 'CPU-only'} {' '.join(isas)}".strip()
        values = {"title": title, "kind": kind, "platform": platform, "cpu": isas}
        return msgspec.convert(values | ({"gpu": [gpu]} if gpu else {}), Group)

    def _own_groups(self, name: str) -> None:
        """Write the groups that a release inherits into the release itself."""
        if not matrix_editor.has(self.text, ("release", name, "group")):
            for group in self.matrix.releases[name].group:
                self._append_group(name, group)

    def _append_group(self, name: str, group: Group) -> None:
        """Add a group after those that the text of a release has."""
        table: dict[str, Any] = msgspec.to_builtins(group)
        order = ("title", "kind", "platform", "gpu", "cpu")
        values = {
            key: list(v) if key in {"gpu", "cpu"} else v for key in order if (v := table[key])
        }
        groups: Trail = ("release", name, "group")
        has = matrix_editor.has(self.text, groups)
        if has and not matrix_editor.is_header(self.text, groups):
            count = len(self.matrix.releases[name].group)
            self._edit(name, matrix_editor.with_element(self.text, groups, count, values))
            return
        place = groups if has else ("release", name)
        text = matrix_editor.with_table(self.text, (*groups, 0), values, place)
        if name in self._matrix.releases:
            self._edit(name, text)
        else:
            self.text = text

    def _ids(self) -> Iterator[str]:
        return (f"{variant.release_name}/{variant.short_id}" for variant in self.matrix.variants)

    def _finish(self, before: set[str]) -> None:
        """Add the rules that new variants need."""
        new = [v for v in self.matrix.variants if f"{v.release_name}/{v.short_id}" not in before]
        self._ensure_rules(new)
        names = list(dict.fromkeys(variant.release_name for variant in new))
        if len(names) > 1:
            self.todo.append(f"releases {', '.join(names)} share groups; all of them get it")
