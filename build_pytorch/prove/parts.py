"""What a proof is made of: the files that are looked at, and the parts that look."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from build_pytorch import proc
from build_pytorch.checks.base import Check, Finding, Outcome, Problem, Skipped
from build_pytorch.errors import BuildPytorchError, ToolError
from build_pytorch.model import Variant

_OURS: Final = re.compile(r"lib(?:torch|c10|caffe2|shm)\w*\.so")
"""PyTorch's own libraries, not those that a wheel brings along."""

Tell = Callable[[str, int, int], None]
"""Told what is being read, how many MB of it are done, and of how many."""


class Target(Struct, frozen=True, kw_only=True):
    """The built files of a variant, or a folder that somebody named.

    `output` is the store path behind the result link, empty for a folder.
    """

    variant: Variant
    folder: Path
    """The folder that holds libtorch_cpu.so."""
    output: str = ""

    def libraries(self) -> list[Path]:
        """PyTorch's own libraries."""
        return sorted(path for path in self.folder.iterdir() if _OURS.fullmatch(path.name))


class Proof(Struct, frozen=True, kw_only=True):
    """What came of one part, with the figures that it rests on."""

    outcome: Outcome
    figures: dict[str, Any] = {}


class Part(Check, frozen=True, kw_only=True):
    """One part of a proof. `look` returns a Proof; it raises Skipped where it cannot look."""

    look: Callable[[Part, Target, Tell], Proof]
    needs_result: bool = False
    """Whether it is about a store path, so that a folder has nothing for it."""

    def prove(self, target: Target, tell: Tell) -> Proof:
        """Look; a tool that is missing or fails proves nothing."""
        try:
            return self.look(self, target, tell)
        except (Skipped, ToolError) as reason:
            why = str(reason).split("\n", maxsplit=1)[0]
            return Proof(outcome=Outcome(check=self, not_run=(self.id,), reason=why))

    def proof(
        self, subjects: Iterable[str], problems: Iterable[Problem], figures: dict[str, Any]
    ) -> Proof:
        """A proof about some subjects; problems name theirs in `path`."""
        findings = tuple(Finding(self, problem) for problem in problems)
        bad = {finding.problem.path for finding in findings}
        names = list(subjects)
        return Proof(
            outcome=Outcome(
                check=self,
                passed=tuple(name for name in names if name not in bad),
                failed=tuple(name for name in names if name in bad),
                findings=findings,
            ),
            figures=figures,
        )


State = Literal["passed", "failed", "skipped"]


def state_of(proofs: Iterable[Proof]) -> State:
    """Failed where a part failed, passed where all passed; a part that did not look is no proof."""
    states = [proof.outcome.state for proof in proofs]
    if "failed" in states:
        return "failed"
    return "passed" if states and "skipped" not in states else "skipped"


def result_link(variant: Variant, root: Path) -> Path:
    """Where `flox build` puts a link to what it built: beside .flox."""
    return (root / variant.release.folder).parent.parent / f"result-{variant.package}"


def built(variant: Variant, root: Path) -> Target | None:
    """The built files of a variant, or None where there is no result link that leads to some.

    Raises BuildPytorchError for a result without PyTorch.
    """
    link = result_link(variant, root)
    if not link.exists():
        return None
    output = link.resolve()
    candidates = [*sorted(output.glob("lib/python3*/site-packages/torch/lib")), output / "lib"]
    for folder in candidates:
        if (folder / "libtorch_cpu.so").exists():
            return Target(variant=variant, folder=folder.resolve(), output=str(output))
    for path in closure_of(str(output)):  # a derivation with an output of its own for libraries
        if (Path(path) / "lib/libtorch_cpu.so").exists():
            return Target(variant=variant, folder=Path(path) / "lib", output=str(output))
    raise BuildPytorchError(f"{link}: no libtorch_cpu.so behind it; build the variant again")


def named(variant: Variant, folder: Path) -> Target:
    """The files in a folder that somebody named. Raises BuildPytorchError."""
    if not folder.is_dir():
        raise BuildPytorchError(f"--path {folder}: no such folder")
    if not (folder / "libtorch_cpu.so").is_file():
        raise BuildPytorchError(
            f"--path {folder}: no libtorch_cpu.so in it; name the folder of PyTorch's libraries, "
            "such as .../site-packages/torch/lib"
        )
    return Target(variant=variant, folder=folder.resolve())


def closure_of(output: str) -> list[str]:
    """Everything that a store path needs at run time, itself included. Raises ToolError."""
    return proc.capture(["nix-store", "--query", "--requisites", output]).stdout.split()
