"""What a proof is made of: the files that are looked at, and the parts that look."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.store import requisites
from build_pytorch.results.artefacts import Artefact
from build_pytorch.verify.check import Check, CheckOutcome, CheckSkipped, Finding

_OURS: Final = re.compile(r"lib(?:torch|c10|caffe2|shm)\w*\.so")
"""PyTorch's own libraries, not those that a wheel brings along."""

Tell = Callable[[str, int, int], None]
"""Told what is being read, how many MB of it are done, and of how many."""


class Target(Struct, frozen=True, kw_only=True):
    """The built files of a variant, or a folder that somebody named: then there is no artefact."""

    variant: Variant
    folder: Path
    """The folder that holds libtorch_cpu.so."""
    artefact: Artefact | None = None

    @property
    def output(self) -> str:
        """The store path behind the result link, empty for a folder."""
        return str(self.artefact.output) if self.artefact else ""

    def libraries(self) -> list[Path]:
        """PyTorch's own libraries."""
        return sorted(path for path in self.folder.iterdir() if _OURS.fullmatch(path.name))


class Proof(Struct, frozen=True, kw_only=True):
    """What came of one part, with the figures that it rests on."""

    outcome: CheckOutcome
    figures: dict[str, Any] = {}

    @property
    def state(self) -> Literal["passed", "failed", "warning", "skipped"]:
        """As of its outcome, but that what could not be decided is no warning: it is no proof."""
        state = self.outcome.state
        return "skipped" if state == "warning" and self.outcome.not_run else state


class Part(Check, frozen=True, kw_only=True):
    """One part of a proof. `look` returns a Proof; it raises CheckSkipped where it cannot look."""

    look: Callable[[Part, Target, Tell], Proof]
    needs_result: bool = False
    """Whether it is about a store path, so that a folder has nothing for it."""
    needs_files: bool = True
    """Whether it reads the libraries, so that they have to be whole."""

    def prove(self, target: Target, tell: Tell) -> Proof:
        """Look; a tool that is missing or fails proves nothing."""
        try:
            return self.look(self, target, tell)
        except (CheckSkipped, ToolError) as reason:
            why = str(reason).split("\n", maxsplit=1)[0]
            return Proof(outcome=CheckOutcome(check=self, not_run=(self.id,), reason=why))

    def proof(
        self,
        subjects: Iterable[str],
        problems: Iterable[Finding],
        figures: dict[str, Any],
        undecided: str = "",
    ) -> Proof:
        """A proof about some subjects; problems name theirs in `path`.

        `undecided` says what could not be decided; then the part proves nothing.
        """
        findings = tuple(self.attach(problem) for problem in problems)
        bad = {finding.path for finding in findings}
        names = list(subjects)
        good = tuple(name for name in names if name not in bad)
        return Proof(
            outcome=CheckOutcome(
                check=self,
                passed=() if undecided else good,
                failed=tuple(name for name in names if name in bad),
                not_run=(good or (self.id,)) if undecided else (),
                reason=undecided,
                findings=findings,
            ),
            figures=figures,
        )


State = Literal["passed", "failed", "skipped"]


def state_of(proofs: Iterable[Proof]) -> State:
    """Failed where a part failed, passed where all passed; a part that did not look is no proof."""
    states = [proof.state for proof in proofs]
    if "failed" in states:
        return "failed"
    return "passed" if states and "skipped" not in states else "skipped"


def built(variant: Variant, artefact: Artefact) -> Target:
    """The built files of a variant. Where PyTorch's are not among them, the result itself.

    Raises ToolError where the store cannot be asked.
    """
    output = artefact.output
    candidates = [*sorted(output.glob("lib/python3*/site-packages/torch/lib")), output / "lib"]
    folder = next((path for path in candidates if has_libtorch(path)), None)
    if folder is None:  # a derivation with an output of its own for libraries
        others = (Path(path) / "lib" for path in requisites(str(output)))
        folder = next((path for path in others if has_libtorch(path)), output)
    return Target(variant=variant, folder=folder.resolve(), artefact=artefact)


def has_libtorch(folder: Path) -> bool:
    """Whether something in a folder has the name of PyTorch's own library, whatever it is."""
    return os.path.lexists(folder / "libtorch_cpu.so")


def named(variant: Variant, folder: Path) -> Target:
    """The files in a folder that somebody named. Raises BuildPytorchError."""
    if not folder.is_dir():
        raise BuildPytorchError(f"--path {folder}: no such folder")
    if not has_libtorch(folder):
        raise BuildPytorchError(
            f"--path {folder}: no libtorch_cpu.so in it; name the folder of PyTorch's libraries, "
            "such as .../site-packages/torch/lib"
        )
    return Target(variant=variant, folder=folder.resolve())
