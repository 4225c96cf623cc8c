"""The facts of recipes: one run of Nix on all of them, and one of Bash on the distinct hooks.

The recipes are evaluated unchanged: offline against nixpkgs_model/, which replaces whatever would
be fetched, or with `pinned` against the nixpkgs that they name. Facts are a flat dict; checks.toml
has their names.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from build_pytorch.base import files, paths, process
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.source_tables import (
    CUDA_PACKAGES,
    CUDA_PACKAGES_VARIABLE,
    known_companions,
    version_for,
)
from build_pytorch.nix import evaluation, quoting
from build_pytorch.nix.evaluation import EvaluatedRecipe, Evaluation, Recipe, Scope
from build_pytorch.verify import hooks
from build_pytorch.verify.context import Context
from build_pytorch.verify.hooks import Hooks

MODEL: Final = Path(__file__).resolve().with_name("nixpkgs_model")
NO_NIX: Final = "Nix is not installed"
CHECKOUT: Final = "/repositories/local"
"""The checkout that recipes with such a variable are evaluated with; the model knows its files."""
_NO_CHECKOUT: Final = '{ checkout = ""; }'
_CHECKOUT: Final = f'{{ checkout = "{CHECKOUT}"; }}'

Facts = dict[str, Any]
"""Values by name, such as `attr.pname` or `env.CXXFLAGS`. One that is null is left out."""

_HASH: Final = re.compile(r"(?<=/)[0-9a-z]{32}-")
"""The hash of a store path: overlays change those of inputs."""
_FOREIGN: Final = re.compile(
    rf"(?<=/store/)[^/\s]*\b({'|'.join(CUDA_PACKAGES)})-[^/\s]*?(-lib|-dev|-include)?(?=[/\s]|$)"
)
"""A CUDA package that may be from elsewhere than nixpkgs: its version is a fact of its own."""
_GPU: Final = re.compile(r"\bSM_?(\d{2,3}[AF]?)\b")
_VERSION: Final = re.compile(r"PyTorch:? (\d+\.\d+\.\d+(?:rc\d+|\.dev\d+)?)")
_MAX_JOBS: Final = re.compile(r"(?m)^\s*export MAX_JOBS=[\"']?(\w+)")


class RecipeFacts(Struct):
    """The results and the facts of recipes by path, and those of their packages in the pin.

    `missing`: why there are none; `no_hooks`: why there are no facts of hooks.
    """

    results: dict[str, EvaluatedRecipe] = {}
    facts: dict[str, Facts] = {}
    pins: dict[str, Facts] = {}
    pin_errors: dict[str, str] = {}
    missing: str = ""
    no_hooks: str = ""

    @property
    def comparable(self) -> set[str]:
        """The recipes with facts of their own and of the pin."""
        return self.facts.keys() & self.pins.keys()


class FactsRun:
    """Nix at work on the recipes of a context; `finish` returns their facts."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pins: dict[str, str] = {}
        recipes = list(_recipes(context))
        names: dict[str, str] = {}
        for recipe in recipes:
            if not recipe.is_set:
                code = _pinned_package(context.by_path[recipe.id])
                self._pins[recipe.id] = names.setdefault(code, f"pin{len(names)}")
        packages = " ".join(f"{name} = {code};" for code, name in names.items())
        inherited = "let inherit (scope) builtins import fetchTarball; in"
        arguments = f"packages = scope: {inherited} {{ {packages} }}; {_arguments(context)}"
        items = [Recipe(name, package=name) for name in names.values()]
        scope = Scope(arguments, is_offline=not context.pinned)
        title = "evaluating against the pinned nixpkgs"
        self._evaluation = Evaluation([*items, *recipes], scope, title)
        # Recipes that a variable points to another checkout are evaluated a second time with it.
        wrappers = (
            [] if context.pinned else [r for r in recipes if CUDA_PACKAGES_VARIABLE in r.text]
        )
        checkout = Scope(arguments.replace(_NO_CHECKOUT, _CHECKOUT), is_offline=True)
        self._with_checkout = Evaluation(wrappers, checkout) if wrappers else None

    def finish(self) -> RecipeFacts:
        """Wait for Nix, run the hooks, and return all facts. Raises ToolError."""
        results, context = self._evaluation.finish(), self._context
        flat = {
            name: _flat(result.facts, context)
            for name, result in results.items()
            if result.facts and name != paths.RELEASE
        }
        no_hooks = "" if process.which("bash") else "no bash"
        if not no_hooks:
            own = [_hooks(facts, context.by_path.get(name)) for name, facts in flat.items()]
            for facts, found in zip(flat.values(), hooks.facts_of(own), strict=True):
                facts.update(found)
        for name, facts in flat.items():
            facts["warnings"] = results[name].warnings
        local = self._with_checkout.finish() if self._with_checkout else {}
        for name, result in local.items():
            found = (result.facts or {}).get("cudaPackages", {})
            flat.get(name, {}).update({f"checkout.{key}": path for key, path in found.items()})
        pins = self._pins.items()
        return RecipeFacts(
            results,
            facts={name: facts for name, facts in flat.items() if name in self._pins},
            pins={path: flat[pin] for path, pin in pins if pin in flat},
            pin_errors={path: results[pin].error for path, pin in pins if pin in results},
            no_hooks=no_hooks,
        )


def start(context: Context) -> FactsRun | None:
    """Start Nix on the recipes of a context; None if there are none, or no Nix.

    Raises ToolError if the pinned nixpkgs is wanted and Nix is missing.
    """
    if context.pinned and not evaluation.is_installed():
        raise ToolError("--pinned: nix-instantiate not found; install Nix")
    return None if why_none(context) else FactsRun(context)


def why_none(context: Context) -> str:
    """Return why a context has no facts, or an empty text."""
    if not context.present:
        return "no recipe to evaluate"
    return "" if evaluation.is_installed() else NO_NIX


def _recipes(context: Context) -> Iterator[Recipe]:
    """Yield the recipes, and release.nix if all are there."""
    root = context.root.resolve()
    # Nix would wait for a FIFO in the place of a recipe that a companion or release.nix imports.
    present = [(p, recipe) for p, recipe in context.present if p.variant.path in context.recipes]
    for package, recipe in present:
        variant = "" if package is package.variant else f"{root}/{package.variant.path}"
        yield Recipe(recipe.path, f"{root}/{recipe.path}", recipe.text, variant)
    if context.is_whole and len(present) == len(context.matrix.packages):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = files.read_text_below(root, paths.RELEASE)
            yield Recipe(paths.RELEASE, f"{root}/{paths.RELEASE}", text, is_set=True)


def _arguments(context: Context) -> str:
    """Return the arguments of evaluate.nix: the facts, and what recipes see in place of Nix's."""
    model = f"/. + {quoting.literal(str(MODEL))}"
    facts = f'facts = import ({model} + "/facts.nix");'
    if context.pinned:
        return facts
    known = {"revisions": _revisions(context.matrix), "repositories": _repositories(context.matrix)}
    given = f"builtins.fromJSON {quoting.literal(json.dumps(known))} // {_NO_CHECKOUT}"
    scope = f'scopeOf = import ({model} + "/offline-scope.nix") ({given});'
    return f"{facts} base = import ({model}) {{ }}; {scope}"


def _revisions(matrix: Matrix) -> dict[str, dict[str, Any]]:
    """Return what the model of nixpkgs has to know of each revision."""
    fields = ("torch", "python", "cuda", "has", "cccl")
    names = (*known_companions(), "triton")
    return {
        pin.rev: {name: getattr(pin, name) for name in fields}
        | {"companions": {name: version_for(pin.torch, name) or "0" for name in names}}
        for pin in matrix.pins.values()
    }


def _repositories(matrix: Matrix) -> dict[str, str]:
    """Return the tarballs of repositories with CUDA packages: the path of each below github.com."""
    found = [v.packages_from for v in matrix.variants if v.packages_from]
    names = {f"{it.owner}/{it.repo}/archive/{it.rev}" for it in found if not it.is_copied}
    return {f"https://github.com/{name}.tar.gz": name for name in names}


def _pinned_package(package: Package) -> str:
    """Return Nix code for the package of the pin to compare with: the CUDA of the release only."""
    variant = package.variant
    pin, cuda = variant.pin, variant.cuda
    url = f"https://github.com/NixOS/nixpkgs/archive/{pin.rev}.tar.gz"
    sha256 = f"sha256 = {quoting.literal(pin.sha256)};" if pin.sha256 else ""
    overlay = f"(final: prev: {{ cudaPackages = final.{cuda.package_set}; }})" if cuda else ""
    support = quoting.literal(cuda is not None)
    arguments = f"cudaSupport = {support};"
    if package.companion is None and variant.group.blas != "openblas":
        arguments += f" blas = p.blas.override {{ blasProvider = p.{variant.group.blas}; }};"
    return f"""(let p = import (fetchTarball {{ url = {quoting.literal(url)}; {sha256} }}) {{
    system = {quoting.literal(variant.cpu.platform)};
    config = {{ allowUnfree = true; allowBroken = true; cudaSupport = {support}; }};
    overlays = [ {overlay} ];
  }}; in p.{variant.python_set}.{package.name}.override {{ {arguments} }})"""


def _hooks(facts: Facts, package: Package | None) -> Hooks:
    """Return the hooks of facts, and the texts that name the package in them."""
    texts = tuple(facts.get(f"attr.{name}") or "" for name in hooks.NAMES)
    version = facts.get("attr.PYTORCH_BUILD_VERSION", facts.get("attr.env.PYTORCH_BUILD_VERSION"))
    if package is None:
        return Hooks(texts, version or "")
    variant = package.variant
    flags, gpu = variant.cpu.flags, variant.gpu
    values = (variant.package, variant.gpu_label, " ".join(flags), ",".join(flags))
    others = hooks.other_texts(package)
    return Hooks(texts, version or "", (*values, gpu.capability if gpu else ""), tuple(others))


def _flat(nested: Mapping[str, Any], context: Context) -> Facts:
    """Return facts by their dotted names, in a form in which equal means the same build."""
    facts: Facts = {}
    root = f"{context.root.resolve()}/"

    def plain(value: Any) -> Any:  # noqa: ANN401 - a value of Nix
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, str) and "/" in value:
            return _FOREIGN.sub(r"\1\2", _HASH.sub("", value.replace(root, "")))
        return value

    def add(prefix: str, table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            name = f"{prefix}{key}"
            if isinstance(value, dict):
                add(f"{name}.", value)
            elif value is not None:
                facts[name] = value if key in {"drvPath", "derivations"} else plain(value)

    add("", {name: nested[name] for name in nested if not (context.pinned and name == "nixpkgs")})
    facts["src.rev"] = str(facts.get("src.rev", "")).removeprefix("refs/tags/")
    flags = facts.get("attr.cmakeFlags", [])  # each of them has one value, in any order
    facts["attr.cmakeFlags"] = sorted(map(str, flags if isinstance(flags, list) else [flags]))
    facts["attr.preBuild"] = re.sub(r"\S+/bin/ccache\n", "ccache\n", facts.get("attr.preBuild", ""))
    texts = f"{facts.get('meta.description')} {facts.get('meta.longDescription')}"
    facts["meta.gpus"] = [f"SM{code}" for code in sorted(set(_GPU.findall(texts)))]
    facts["meta.versions"] = sorted(set(_VERSION.findall(texts)))
    facts["MAX_JOBS"] = (_MAX_JOBS.findall(facts.get("attr.preConfigure", "")) or [""])[-1]
    return facts
