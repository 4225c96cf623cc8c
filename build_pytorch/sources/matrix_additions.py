"""New GPU architectures, ISAs, variants and releases in the text of matrix.toml. Pure.

What is not in the matrix comes from known_hardware.toml.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.base.versions import numbers
from build_pytorch.matrix import matrix_editor, rules
from build_pytorch.matrix.compatibility import combined, compiles, cuda_window
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.selection import only_release, require_release
from build_pytorch.matrix.source_tables import known_companions, repository_of, version_for
from build_pytorch.matrix.tables import GpuArchitecture, Group
from build_pytorch.sources.draft_groups import DraftGroups
from build_pytorch.sources.release_move import ReleaseMove

_SEVERAL: Final = re.compile(r"sm\d{2,3}(_\d{2,3})+")
_GPU_GUIDE: Final = "docs/how-to/add-a-gpu.md describes the table"
_ISA_GUIDE: Final = "docs/how-to/add-a-cpu-isa.md describes the table"


class Draft(DraftGroups):
    """A matrix to which tables are added one after the other."""

    # --- what users name ---

    def add(self, name: str, release: str = "") -> None:
        """Add a GPU architecture (sm75), an ISA (avx) or a variant (sm90-armv9, cpu-avx).

        Raises BuildPytorchError for a name without known facts and for an ambiguous release.
        """
        if "+" in name:
            fix = f"write `invoke add companion {name.rpartition('+')[2][:60]} --release NAME`"
            raise BuildPytorchError(f'"{name[:60]}": add takes no companion of one variant; {fix}')
        before = {variant.path for variant in self.matrix.variants}
        qualifier, slash, word = name.rpartition("/")
        release = qualifier if slash else release
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
        self._add_rules(before)

    def add_release(self, move: ReleaseMove, groups: Sequence[Group] = ()) -> None:
        """Add a release beside the one that moves.

        Without `groups` it has those of the other one that its CUDA compiles for. Raises
        BuildPytorchError for a name in use, and for a GPU that it cannot have.
        """
        name, releases = move.beside, self.matrix.releases
        if name in releases:
            raise BuildPytorchError(f'release "{name}" exists already; choose another name')
        before = {variant.path for variant in self.matrix.variants}
        table = move.table()
        chosen = tuple(groups) or self.inherited_groups(move)
        self.text = move.with_pins(self.text)
        place: Trail = ("release", list(releases)[-1])
        self.text = matrix_editor.with_table(self.text, ("release", name), table, place)
        if chosen != releases[table["like"]].group:
            for group in chosen:
                self.append_group(name, group)
        self._add_rules(before)
        self.todo += (
            *move.todo,
            f"write the purpose of release.{name}: whom it is for",
        )

    def add_companion(self, name: str, release: str) -> None:
        """Add a companion to a release, in the version for its PyTorch; from its pin, if it can be.

        Raises BuildPytorchError for an unknown companion, and for a PyTorch that it has none for.
        """
        release = only_release(self.matrix, release, list(self.matrix.releases))
        known, torch = known_companions(), self.matrix.releases[release].torch
        if name not in known:
            hint = near_miss(name, known) or f"; known are {', '.join(known)}"
            raise BuildPytorchError(f'"{name[:60]}": no companion{hint}')
        if name in self.matrix.releases[release].companion.packages:
            return
        if (version := version_for(torch.version, name)) is None:
            raise BuildPytorchError(f"{name}: no version for PyTorch {torch.version} is known")
        values: dict[str, Any] = {"version": version, "source": "nixpkgs"}
        if not torch.is_of_pin:
            owner, repo = repository_of(name)
            values = {"version": version, "owner": owner, "repo": repo, "rev": f"v{version}"}
            values |= {"hash": "", "hash_of": "", "patches": "clear"}
        where: Trail = ("release", release, "companion", name)
        self.text = matrix_editor.with_table(
            self.text, where, values, ("release", release, "torch")
        )
        self.todo.append(f"check that pin.{self.matrix.releases[release].nixpkgs.pin} has {name}")
        if known[name].note:
            self.todo.append(f"{name}: {known[name].note}")

    def group_of(self, variant: Variant) -> Group:
        """Return a group for a variant; its tables are added. Raises BuildPytorchError."""
        if variant.gpu_key:
            self._ensure_gpu(variant.gpu_key)
        self.ensure_isa(variant.cpu_key)
        name = next(iter(self.matrix.releases))
        return self.new_group(name, variant.gpu_key or "", variant.cpu.platform, [variant.cpu_key])

    # --- tables ---

    def _ensure_gpu(self, key: str) -> GpuArchitecture:
        """Add the table of a GPU architecture if it is missing. Raises BuildPytorchError."""
        gpus = self.matrix.gpus
        if key in gpus:
            return gpus[key]
        values = self._gpu_values(key)
        gpu = msgspec.convert(values, GpuArchitecture)
        higher = [k for k, it in gpus.items() if numbers(it.capability) > numbers(gpu.capability)]
        place: Trail = ("gpu", *(higher[-1:] or list(gpus)[:1]))
        is_first = bool(gpus) and not higher
        self.text = matrix_editor.with_table(
            self.text, ("gpu", key), values, place, before=is_first
        )
        if gpu.codegen_base:
            self._ensure_codegen_rule(key)
        known = self._known.gpu.get(key)
        if known and known.unconfirmed:
            self.todo.append(f"gpu.{key}, not confirmed: {known.unconfirmed}")
        products = ", ".join(gpu.products)
        self.todo.append(f"gpu.{key}: check products and hosts; known are {products}")
        return gpu

    def _ensure_codegen_rule(self, key: str) -> None:
        """Add the known rule that reads codegen_base, with the architectures that it names."""
        fix = "codegen-condition"
        if any(fix in rule.effect.fixes for rule in self._matrix.rules):
            return
        rule = next(it for it in self._known.raw["rule"] if fix in it["effect"].get("fixes", ()))
        for other in rule["when"]["gpu"]:
            if not matrix_editor.has(self.text, ("gpu", other)):
                values = self._known.table("gpu", other)
                self.text = matrix_editor.with_table(
                    self.text, ("gpu", other), values, ("gpu", key)
                )
        last = ("rule", len(self._matrix.rules) - 1)
        self.text = matrix_editor.with_table(self.text, ("rule", 0), rule, last)

    def _gpu_values(self, key: str) -> dict[str, Any]:
        if key in self._known.gpu:
            return self._known.table("gpu", key)
        if _SEVERAL.fullmatch(key):
            known = {**self._known.gpu, **self.matrix.gpus}
            keys = [f"sm{code}" for code in key.removeprefix("sm").split("_")]
            for each in keys:
                if each not in known:
                    raise BuildPytorchError(f'"{key}": no facts about {each}; {_GPU_GUIDE}')
            table: dict[str, Any] = msgspec.to_builtins(combined([known[each] for each in keys]))
            return {name: value for name, value in table.items() if value}
        names = [*self._known.gpu, *self._known.cpu]
        raise _no_facts(key, "it", names, _GPU_GUIDE)

    def ensure_isa(self, key: str) -> None:
        """Add the table of an ISA if it is missing. Raises BuildPytorchError for an unknown one."""
        cpus = self.matrix.cpus
        if key in cpus:
            return
        if key not in self._known.cpu:
            raise _no_facts(key, "this ISA", list(self._known.cpu), _ISA_GUIDE)
        isa = self._known.cpu[key]
        siblings = [it for it in cpus if cpus[it].platform == isa.platform] or list(cpus)
        below = [it for it in siblings if cpus[it].level < isa.level]
        place = ("cpu", (below or siblings)[-1 if below else 0])
        values = self._known.table("cpu", key)
        self.text = matrix_editor.with_table(
            self.text, ("cpu", key), values, place, before=not below
        )

    def _add_rules(self, before: set[str]) -> None:
        """Add the known rules that hold for new variants and that the matrix lacks."""
        new = [variant for variant in self.matrix.variants if variant.path not in before]
        have = {rule.id for rule in self.matrix.rules}
        raw = {rule["id"]: rule for rule in self._known.raw["rule"]}
        for rule in self._known.rule:
            if rule.id in have or not {*rule.effect.patches} <= self.matrix.patches.keys():
                continue
            if any(rules.holds(rule.when, v) and not rules.is_ended(rule, v) for v in new):
                values = dict(raw[rule.id])
                for condition in values.keys() & {"when", "until"}:
                    values[condition] = self._restricted(values[condition])
                last = ("rule", len(self.matrix.rules) - 1)
                self.text = matrix_editor.with_table(self.text, ("rule", 0), values, last)
                if rule.unconfirmed:
                    self.todo.append(f"rule {rule.id}, not confirmed: {rule.unconfirmed}")
        names = list(dict.fromkeys(variant.release_name for variant in new))
        if len(names) > 1:
            self.todo.append(f"releases {', '.join(names)} share groups; all of them get it")

    def _restricted(self, condition: dict[str, Any]) -> dict[str, Any]:
        """Return a condition without keys that this matrix does not have."""
        known: dict[str, Collection[str]] = {"gpu": self.matrix.gpus, "cpu": self.matrix.cpus}
        return {
            name: [key for key in value if key in known[name]] if name in known else value
            for name, value in condition.items()
        }

    # --- variants ---

    def _add_gpu(self, key: str, release: str) -> None:
        """Add an architecture to the largest fitting group of each platform that has products."""
        gpu = self._ensure_gpu(key)
        name = self._lacking(key, self._compiling(key, gpu, release), release)
        known = self._known.gpu.get(key)
        limited = set(known.isas) if known else set()
        for platform in gpu.hosts if name else ():
            everything = enumerate(self.matrix.releases[name].group)
            groups = {i: g for i, g in everything if (g.kind, g.platform) == ("gpu", platform)}
            if any(key in group.gpu for group in groups.values()):
                continue
            fitting = {i: g for i, g in groups.items() if not limited or set(g.cpu) <= limited}
            isas = [isa for isa, cpu in self.matrix.cpus.items() if cpu.platform == platform]
            isas = [isa for isa in isas if not limited or isa in limited]
            if fitting:
                index = max(fitting, key=lambda i: len(fitting[i].gpu) * len(fitting[i].cpu))
                self.join(name, index, "gpu", key)
            elif isas and (limited or not groups):
                self.append_group(name, self.new_group(name, key, platform, isas))

    def _add_isa(self, key: str, release: str) -> None:
        """Add an ISA to the groups of its platform whose hosts have it."""
        self.ensure_isa(key)
        platform = self.matrix.cpus[key].platform
        releases = self.matrix.releases.items()
        fitting = [n for n, it in releases if any(g.platform == platform for g in it.group)]
        name = self._lacking(key, fitting, release)
        for index, group in enumerate(self.matrix.releases[name].group if name else ()):
            gpus = tuple(gpu for gpu in group.gpu if self._is_possible(gpu, key))
            if group.platform != platform:
                continue
            if gpus == group.gpu:
                self.join(name, index, "cpu", key)
            elif gpus:
                title = f"{group.title}, {key}"
                new = msgspec.structs.replace(group, title=title, gpu=gpus, cpu=(key,))
                self.append_group(name, msgspec.structs.replace(new, impossible=()))

    def _is_possible(self, gpu: str, isa: str) -> bool:
        """Return whether a machine may have both."""
        known = self._known.gpu.get(gpu)
        has_it = not (known and known.isas) or isa in known.isas
        return has_it and self.matrix.cpus[isa].platform in self.matrix.gpus[gpu].hosts

    def _add_variant(self, word: str, release: str, gpu_key: str, isa: str) -> None:
        """Add one variant: to a group that has only its GPU or only its ISA, or as a group."""
        gpu = self._ensure_gpu(gpu_key) if gpu_key else None
        self.ensure_isa(isa)
        platform = self.matrix.cpus[isa].platform
        if gpu and platform not in gpu.hosts:
            known = f"{', '.join(gpu.products)} on {' and '.join(gpu.hosts)} only"
            raise BuildPytorchError(f"{word}: no {platform} machine is known to have it: {known}")
        own = self._known.gpu.get(gpu_key)
        if own and not own.names and own.isas and isa not in own.isas:  # it is part of a module
            beside = f"the CPU beside {', '.join(own.products)} has {' or '.join(own.isas)}"
            raise BuildPytorchError(f"{word}: no machine has that pair: {beside}")
        if not (name := self._lacking(word, self._compiling(word, gpu, release), release)):
            return
        new = self.new_group(name, gpu_key, platform, [isa])
        for index, group in enumerate(self.matrix.releases[name].group):
            if (group.kind, group.platform) != (new.kind, new.platform):
                continue
            if group.gpu == new.gpu:
                self.join(name, index, "cpu", isa)
                return
            if group.cpu == new.cpu:
                self.join(name, index, "gpu", gpu_key)
                return
        self.append_group(name, new)

    def _compiling(self, what: str, gpu: GpuArchitecture | None, release: str) -> Sequence[str]:
        """Return the releases whose CUDA compiles for a GPU; all without one.

        Raises BuildPytorchError if the named release is none of them.
        """
        fitting = [n for n, it in self.matrix.releases.items() if not gpu or compiles(it.cuda, gpu)]
        if release and gpu and release not in fitting:
            cuda = self.matrix.releases[release].cuda
            has = f"CUDA {cuda.version}" if cuda else "it has no CUDA"
            window = f"CUDA {cuda_window(gpu)}"
            raise BuildPytorchError(f"{what}: needs {window}, release {release}: {has}")
        return fitting

    def _lacking(self, what: str, fitting: Sequence[str], release: str) -> str:
        """Return the fitting release that has no such variant, GPU or ISA; empty if all have it.

        Raises BuildPytorchError for several.
        """
        found = []
        for name in fitting:
            variants = self.matrix.of_release(name)
            has_it = any(what in {v.short_id, v.gpu_key, v.cpu_key} for v in variants)
            if release in {"", name} and not has_it:
                found.append(name)
        if len(found) > 1:
            fix = f"write {found[0]}/{what}" if "-" in what else f"give --release {found[0]}"
            raise BuildPytorchError(f"{what}: releases {', '.join(found)} can have it; {fix}")
        return found[0] if found else ""


def _no_facts(key: str, what: str, known: Sequence[str], guide: str) -> BuildPytorchError:
    hint = near_miss(key, known) or f"; known are {', '.join(known)}"
    if re.fullmatch(r"sm\d{2,3}[af]?", key):  # a number is no mistyped other one
        hint = ""
    return BuildPytorchError(f'"{key[:60]}": no facts about {what}{hint}; {guide}')
