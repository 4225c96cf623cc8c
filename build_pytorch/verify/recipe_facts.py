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
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.known_hardware import version_for
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import CUDA_PACKAGES, CUDA_PACKAGES_VARIABLE
from build_pytorch.nix import evaluation, quoting, store
from build_pytorch.nix.evaluation import EvaluatedRecipe, Recipe
from build_pytorch.verify import hooks
from build_pytorch.verify.context import Context
from build_pytorch.verify.hooks import Hooks

MODEL: Final = Path(__file__).resolve().with_name("nixpkgs_model")
CHECKOUT: Final = "/repositories/local"
"""The checkout that recipes with such a variable are evaluated with; the model knows its files."""
_WITH_CHECKOUT: Final = " with a checkout"

Facts = dict[str, Any]
"""Values by name, such as `attr.pname` or `env.CXXFLAGS`. Without a fact is the same as null."""

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
    """The results of Nix and the facts, both by path; packages of the pin have names instead.

    `pins`: the name of the pin's package by path. `missing`: why there are no facts; `no_hooks`:
    why there are none of hooks.
    """

    results: dict[str, EvaluatedRecipe] = {}
    facts: dict[str, Facts] = {}
    pins: dict[str, str] = {}
    missing: str = ""
    no_hooks: str = ""

    def of(self, path: str) -> tuple[Facts | None, Facts | None]:
        """Return the facts of a recipe and of the pin's package, as far as they are known."""
        return self.facts.get(path), self.facts.get(self.pins.get(path, ""))


def facts_of(context: Context) -> RecipeFacts:
    """Evaluate the recipes of a context, run their hooks, and return all facts.

    Raises ToolError if Nix or Bash fail, or the pinned nixpkgs is wanted and cannot be had.
    """
    if not context.present:
        return RecipeFacts(missing="no recipe to evaluate")
    if not process.which(store.NIX_INSTANTIATE):
        if context.pinned:
            raise ToolError("--pinned: nix-instantiate not found; install Nix")
        return RecipeFacts(missing="Nix is not installed (Debian: nix-bin)")
    recipes = list(_recipes(context))
    packages = {it.id: _pinned_package(context.by_path[it.id]) for it in recipes if not it.is_set}
    names = {code: f"pin{number}" for number, code in enumerate(dict.fromkeys(packages.values()))}
    if not context.pinned:  # wrappers read a checkout instead, if a variable names one
        recipes += [
            it._replace(id=it.id + _WITH_CHECKOUT, checkout=CHECKOUT)
            for it in recipes
            if CUDA_PACKAGES_VARIABLE in it.text
        ]
    items = [Recipe(name, package=name) for name in names.values()]
    title = "evaluating against the pinned nixpkgs"
    arguments = _arguments(context, names)
    results = evaluation.evaluate(
        [*items, *recipes], arguments, title, is_offline=not context.pinned
    )
    given = RecipeFacts(results, pins={path: names[code] for path, code in packages.items()})
    for name, result in results.items():
        nested = result.facts or {}
        path = name.removesuffix(_WITH_CHECKOUT)
        if name != path:
            local = {f"checkout.{key}": it for key, it in nested.get("cudaPackages", {}).items()}
            given.facts.get(path, {}).update(local)
        elif nested and name != paths.RELEASE:
            given.facts[name] = _flat(nested, context) | {"warnings": result.warnings}
    _add_facts_of_release(context, given)
    _add_facts_of_hooks(context, given)
    return given


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
            text = files.read_below(root, paths.RELEASE).decode(errors="replace")
            yield Recipe(paths.RELEASE, f"{root}/{paths.RELEASE}", text, is_set=True)


def _arguments(context: Context, pins: Mapping[str, str]) -> str:
    """Return the arguments of evaluate.nix: packages of the pins, facts, and what recipes see."""
    packages = " ".join(f"{name} = {code};" for code, name in pins.items())
    inherited = "let inherit (scope) builtins import fetchTarball; in"
    model = f"/. + {quoting.literal(str(MODEL))}"
    arguments = f"packages = scope: {inherited} {{ {packages} }};"
    arguments += f' facts = import ({model} + "/facts.nix");'
    if context.pinned:
        return arguments
    fields = ("torch", "python", "cuda", "has", "cccl")
    names = (*known_hardware.load().companion, "triton")
    revisions = {
        pin.rev: {name: getattr(pin, name) for name in fields}
        | {"companions": {name: version_for(pin.torch, name) or "0" for name in names}}
        for pin in context.matrix.pins.values()
    }
    sources = [v.packages_from for v in context.matrix.variants if v.packages_from]
    archives = {f"{it.owner}/{it.repo}/archive/{it.rev}" for it in sources if not it.folder}
    repositories = {f"https://github.com/{archive}.tar.gz": archive for archive in archives}
    known = json.dumps({"revisions": revisions, "repositories": repositories})
    given = f"builtins.fromJSON {quoting.literal(known)}"
    return (
        f"{arguments} base = import ({model}) {{ }};"
        f' scopeOf = import ({model} + "/offline-scope.nix") ({given});'
    )


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


def _add_facts_of_release(context: Context, given: RecipeFacts) -> None:
    """Add what release.nix has for each package."""
    release = given.results.get(paths.RELEASE)
    if release is None or not release.facts:
        return
    for package in context.matrix.packages:
        if facts := given.facts.get(package.path):
            own = release.facts["packages"].get(package.attribute, {})
            facts |= {f"release.{name}": value for name, value in own.items()}
            facts["release.isPossible"] = package.attribute in release.facts["possible"]


def _add_facts_of_hooks(context: Context, given: RecipeFacts) -> None:
    if not process.which("bash"):
        given.no_hooks = "no bash"
        return
    own = [_hooks(facts, context.by_path.get(name)) for name, facts in given.facts.items()]
    for facts, found in zip(given.facts.values(), hooks.facts_of(own), strict=True):
        facts.update(found)


def _hooks(facts: Facts, package: Package | None) -> Hooks:
    """Return the hooks of facts, and the texts that name the package in them."""
    texts = tuple(facts.get(f"attr.{name}") or "" for name in hooks.NAMES)
    version = facts.get("attr.PYTORCH_BUILD_VERSION", facts.get("attr.env.PYTORCH_BUILD_VERSION"))
    if package is None:
        return Hooks(texts, version or "")
    variant = package.variant
    flags, gpu = variant.cpu.flags, variant.gpu
    values = (variant.package, variant.gpu_label, " ".join(flags), ",".join(flags))
    others = tuple(hooks.other_texts(package))
    return Hooks(texts, version or "", (*values, gpu.capability if gpu else ""), others)


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
            else:
                facts[name] = value if key in {"drvPath", "derivations"} else plain(value)

    add("", {name: nested[name] for name in nested if not (context.pinned and name == "nixpkgs")})
    facts["src.rev"] = (facts.get("src.rev") or "").removeprefix("refs/tags/")
    flags = facts.get("attr.cmakeFlags") or []  # each of them has one value, in any order
    facts["attr.cmakeFlags"] = sorted(map(str, flags if isinstance(flags, list) else [flags]))
    facts["attr.preBuild"] = re.sub(
        r"\S+/bin/ccache\n", "ccache\n", facts.get("attr.preBuild") or ""
    )
    facts["attr.patches"] = facts.get("attr.patches") or []
    texts = f"{facts.get('meta.description')} {facts.get('meta.longDescription')}"
    facts["meta.gpus"] = [f"SM{code}" for code in sorted(set(_GPU.findall(texts)))]
    facts["meta.versions"] = sorted(set(_VERSION.findall(texts)))
    facts["MAX_JOBS"] = (_MAX_JOBS.findall(facts.get("attr.preConfigure") or "") or [""])[-1]
    return facts
