"""What Nix makes of recipes: derivations and their store paths, all from one evaluation.

Like Flox and `nix-build` it takes the recipes as they are; only an import of nixpkgs that several
of them say in the same words is made once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from build_pytorch.base import process
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Variant
from build_pytorch.nix import quoting
from build_pytorch.nix.nix_evaluation import NO_NETWORK, message_of, shared_import


class Derivation(msgspec.Struct, frozen=True, rename="camel"):
    """What Nix would build for one recipe."""

    drv_path: str
    outputs: dict[str, str]
    system: str
    features: tuple[str, ...]

    @property
    def output(self) -> str:
        """The store path that a result link points to."""
        return self.outputs["out"] if "out" in self.outputs else next(iter(self.outputs.values()))


class DerivationSet(msgspec.Struct, frozen=True):
    """Derivations by package name, and for those that have none the reason."""

    derivations: dict[str, Derivation]
    failures: dict[str, str]


def evaluate(root: Path, variants: Sequence[Variant], *, write: bool = False) -> DerivationSet:
    """The derivations of variants, in one Nix process as long as all of them evaluate.

    With `write` the store gets them, so that they can be built without another evaluation.
    Raises ToolError where Nix is missing or nixpkgs cannot be had.
    """
    failures: dict[str, str] = {}
    rest = list(variants)
    while rest:
        answer = _ask(root, rest, write=write)
        if answer.code == 0:
            decoded = msgspec.json.decode(answer.stdout.encode(), type=dict[str, Derivation])
            return DerivationSet({v.package: decoded[v.path] for v in rest}, failures)
        if NO_NETWORK.search(answer.stderr):
            raise ToolError(
                "the pinned nixpkgs cannot be downloaded and is not in the store; run this where "
                f"there is a network (Nix says: {message_of(answer.stderr)})"
            )
        announced = re.findall(r"(?m)^trace: evaluating (.*)$", answer.stderr)
        culprit = next((v for v in rest if announced and v.path == announced[-1]), None)
        if culprit is None:
            raise ToolError(f"Nix cannot evaluate the recipes: {message_of(answer.stderr)}")
        failures[culprit.package] = message_of(answer.stderr)
        rest.remove(culprit)
    return DerivationSet({}, failures)


def _ask(root: Path, variants: Sequence[Variant], *, write: bool) -> process.ProcessResult:
    imports: dict[str, str] = {}
    items = []
    for variant in variants:
        place = (root / variant.path).resolve()
        recipe = place.read_text(encoding="utf-8", errors="replace")
        argument = ""
        if text := shared_import(recipe):
            name = imports.setdefault(text, f"n{len(imports)}")
            argument = f"nixpkgs_pinned = {name};"
        items.append(
            f"(f {quoting.literal(variant.path)} {quoting.literal(str(place))} {{ {argument} }})"
        )
    shared = "\n".join(f"  {name} = {text};" for text, name in imports.items())
    expression = f"""let
{shared}
  f = id: path: args: {{
    name = id;
    value = builtins.trace "evaluating ${{id}}" (
      let
        recipe = import (/. + path);
        d = if builtins.isFunction recipe then recipe args else recipe;
      in {{
        inherit (d) drvPath system;
        outputs = builtins.listToAttrs
          (map (name: {{ inherit name; value = d.${{name}}.outPath; }}) d.outputs);
        features = d.requiredSystemFeatures or [ ];
      }});
  }};
in builtins.listToAttrs [ {" ".join(items)} ]"""
    progress = ProgressLine("evaluating recipes", len(variants))
    mode = ["--read-write-mode"] if write else []
    argv = ["nix-instantiate", "--eval", "--strict", "--json", *mode, "-"]
    running = process.start(argv, stdin=expression)
    while running.is_running(0.5):
        progress.at(running.said().count("trace: evaluating "))
    progress.end()
    return running.finish()
