"""The facts of recipes: one run of Nix on all of them, one of Bash on the distinct hooks, texts.

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
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.known_hardware import version_for
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import CUDA_PACKAGES, CUDA_PACKAGES_VARIABLE
from build_pytorch.nix import evaluation, quoting, store
from build_pytorch.nix.evaluation import EvaluatedRecipe, Recipe
from build_pytorch.verify import hooks
from build_pytorch.verify.check import Context, RecipeFile
from build_pytorch.verify.hooks import HookRun

MODEL: Final = Path(__file__).resolve().with_name("nixpkgs_model")
CHECKOUT: Final = "/repositories/local"  #: for recipes with such a variable; the model has it
_WITH_CHECKOUT: Final = " with a checkout"

Facts = dict[str, Any]
"""Values by name, such as `attr.pname` or `env.CXXFLAGS`. Without a fact is the same as null."""

_HASH: Final = re.compile(r"/[0-9a-z]{32}-")  #: of a store path: overlays change it
_FOREIGN: Final = re.compile(
    rf"/store/[^/\s]*\b({'|'.join(CUDA_PACKAGES)})-[^/\s]*?(-lib|-dev|-include)?(?=[/\s]|$)"
)
"""A CUDA package that may be from elsewhere than nixpkgs: its version is a fact of its own."""
_GPU: Final = re.compile(r"\bSM_?(\d{2,3}[AF]?)\b")
_VERSION: Final = re.compile(r"PyTorch:? (\d+\.\d+\.\d+(?:rc\d+|\.dev\d+)?)")
_CCACHE: Final = re.compile(r"\S+/bin/ccache\n")
_COMMENT: Final = re.compile(r"(?m)^\s*#.*$")
_MAX_JOBS: Final = re.compile(r"(?m)^\s*export MAX_JOBS=[\"']?(\w+)")

_OVERRIDE: Final = re.compile(
    r"\.torch\.override\s*\{((?:[^{}]|\$?\{[^{}]*\})*)\}\s*\)\s*\.overrideAttrs\b"
)
_SED: Final = re.compile(r"\n[ \t]*((?:sed|perl)\b[^\n]* -[a-z]*i\b[^\n]*?(\S+))[ \t]*(?=\n|\Z)")
_LENIENT: Final = re.compile(r"--replace(?<!\"--replace)(?:-quiet|-warn)?(?=[\s'\"])")
_GPU_ARCH: Final = re.compile(r'gpuArch(?<!\wgpuArch)(?:Num|SM)\s*=\s*"[^"]*"')


class RecipeFacts(Struct):
    """The results of Nix and the facts, both by path; packages of the pin have names instead.

    `pins`: the name of the pin's package by path. `missing`: why there are no facts.
    """

    results: dict[str, EvaluatedRecipe] = {}
    facts: dict[str, Facts] = {}
    pins: dict[str, str] = {}
    missing: str = ""


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
    if not process.which("bash"):
        return RecipeFacts(missing="no bash")
    given = _evaluated(context)
    packages = {package.path: package for package, _ in context.present}
    runs = []
    for name, facts in given.facts.items():
        texts = tuple(facts.get(f"attr.{hook}") or "" for hook in hooks.NAMES)
        variable = "PYTORCH_BUILD_VERSION"
        version = facts.get(f"attr.{variable}") or facts.get(f"attr.env.{variable}")
        runs.append((HookRun(texts, version or ""), packages.get(name)))
    for facts, found in zip(given.facts.values(), hooks.facts_of(runs), strict=True):
        facts.update(found)
    return given


def _evaluated(context: Context) -> RecipeFacts:
    """Evaluate recipes and the packages of their pins, and return the facts but those of hooks."""
    recipes = list(_recipes(context))
    codes = {p.path: _pinned_package(p) for p, _ in context.present}
    names = {code: f"pin{number}" for number, code in enumerate(dict.fromkeys(codes.values()))}
    if not context.pinned:  # wrappers read a checkout instead, if a variable names one
        recipes += [
            it._replace(id=it.id + _WITH_CHECKOUT, checkout=CHECKOUT)
            for it in recipes
            if CUDA_PACKAGES_VARIABLE in it.text
        ]
    items = [*(Recipe(name, package=name) for name in names.values()), *recipes]
    title = "evaluating against the pinned nixpkgs"
    arguments = _arguments(context, names)
    results = evaluation.evaluate(items, arguments, title, is_offline=not context.pinned)
    given = RecipeFacts(results, pins={path: names[code] for path, code in codes.items()})
    nested = {name: result.facts for name, result in results.items() if result.facts}
    of_set, root = nested.pop(paths.RELEASE, None), context.root.resolve()
    for name in [name for name in nested if not name.endswith(_WITH_CHECKOUT)]:
        more = {"checkout": nested.get(name + _WITH_CHECKOUT, {}).get("cudaPackages", {})}
        given.facts[name] = _flat(nested[name] | more, f"{root}/", is_pinned=context.pinned)
        given.facts[name]["warnings"] = results[name].warnings
    for package in context.matrix.packages if of_set else ():
        if of_set and package.path in given.facts:
            own = of_set["packages"].get(package.attribute, {})
            own |= {"isPossible": package.attribute in of_set["possible"]}
            given.facts[package.path] |= {f"release.{key}": it for key, it in own.items()}
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
        with contextlib.suppress(OSError):
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
    arguments += f" base = import ({model}) {{ }};"
    return f'{arguments} scopeOf = import ({model} + "/offline-scope.nix") ({given});'


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


def _flat(nested: Mapping[str, Any], root: str, *, is_pinned: bool) -> Facts:
    """Return facts by their dotted names, in a form in which equal means the same build."""
    facts: Facts = {}

    def plain(value: Any) -> Any:  # noqa: ANN401 - a value of Nix
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, str) and "/" in value:
            return _FOREIGN.sub(r"/store/\1\2", _HASH.sub("/", value.replace(root, "")))
        return value

    def add(prefix: str, table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            if isinstance(value, dict):
                add(f"{prefix}{key}.", value)
            else:
                facts[prefix + key] = value if key in {"drvPath", "derivations"} else plain(value)

    add("", {key: it for key, it in nested.items() if not (is_pinned and key == "nixpkgs")})
    facts["src.rev"] = (facts.get("src.rev") or "").removeprefix("refs/tags/")
    flags = facts.get("attr.cmakeFlags") or []  # each of them has one value, in any order
    facts["attr.cmakeFlags"] = sorted(map(str, flags if isinstance(flags, list) else [flags]))
    facts["attr.preBuild"] = _CCACHE.sub("ccache\n", facts.get("attr.preBuild") or "")
    facts["attr.patches"] = facts.get("attr.patches") or []
    texts = f"{facts.get('meta.description')} {facts.get('meta.longDescription')}"
    facts["meta.gpus"] = [f"SM{code}" for code in sorted(set(_GPU.findall(texts)))]
    facts["meta.versions"] = sorted(set(_VERSION.findall(texts)))
    facts["MAX_JOBS"] = (_MAX_JOBS.findall(facts.get("attr.preConfigure") or "") or [""])[-1]
    return facts


def of_text(package: Package, recipe: RecipeFile) -> tuple[Facts, Facts]:
    """Return the facts of the text of a package's recipe, and those that are expected.

    They hold what a person greps for, and what only the text shows, also of one that is no Nix.
    """
    own, text = package.variant.pin.rev, recipe.text
    pins = [rev for rev in (own, *package.release.nixpkgs.retired) if rev in text]
    # Companions import the pin from another file.
    facts: Facts = {"text.pins": pins}
    wanted: Facts = {"text.pins": [own] if own in pins or not package.companion else []}
    if package.companion:
        return facts, wanted
    torch, gpu, cuda = package.release.torch, package.gpu, package.cuda
    words = [] if torch.is_of_pin else [f'version = "{torch.version}"']
    words += [cuda.package_set] if cuda else []
    for patch in package.effects.patches:
        words.append(patch.name)
        text = text.replace(patch.url, "")  # may contain the name
    pattern = "|".join(map(re.escape, words if cuda else [*words, "cudaPackages_"]))
    override = _OVERRIDE.search(recipe.code)
    arguments = override[1] if override else ""
    stages = re.findall(r"(?<![\w.-])cudaSupport\s*=\s*\w+", arguments)[:1]
    stages += re.findall(r"\bcudaPackages\b(?=\s*[=;])", arguments)
    facts |= {
        # cudaPackages_13 is not cudaPackages_13_1; a word that ends in _ is a prefix.
        "text.overlays": sorted(re.findall(rf"(?:{pattern})(?:(?<=_)|(?!\w))", text)),
        "text.magma": re.findall("filterMagma|USE_MAGMA=OFF|USE_MAGMA=0", text),
        "text.override": [" ".join(stage.split()) for stage in stages],
        "text.substitutions": _LENIENT.findall(recipe.code) + _silent_seds(recipe.code),
    }
    wanted |= {
        "text.overlays": sorted(words),
        "text.magma": [],
        "text.override": [f"cudaSupport = {'true' if gpu else 'false'}"],
        "text.substitutions": [],
    }
    if gpu:
        names = {" ".join(name.split()) for name in _GPU_ARCH.findall(recipe.code)}
        facts["text.gpuArch"] = sorted(names)
        wanted["text.gpuArch"] = [f'gpuArchNum = "{gpu.code}"', f'gpuArchSM = "{gpu.capability}"']
    return facts, wanted


def _silent_seds(code: str) -> list[str]:
    """Return the commands that edit a file and go on if the text is not there."""
    found = []
    for match in _SED.finditer(code):
        after = code[match.end() :].split("\n", 5)[:5]
        looks = any("grep -q" in line and match[2] in line for line in after)
        if not (looks and any("exit 1" in line for line in after)):
            found.append(match[1])
    return found


def changed_words(old: Any, new: Any, most: int) -> tuple[str, str]:  # noqa: ANN401 - facts
    """Return the words, or the items of lists, that only the old and only the new fact has.

    Each is cut off after `most` characters. Both are empty if only layout or comments differ.
    """
    gone = (word for word in _words(old) if word not in _words(new))
    come = (word for word in _words(new) if word not in _words(old))
    return shortened(" ".join(gone), most), shortened(" ".join(come), most)


def _words(value: Any) -> list[str]:  # noqa: ANN401 - a fact
    """Return the items of a list, or the words of a text without its comments, each once."""
    if value is None:
        return []
    if isinstance(value, list):
        return [" ".join(str(item).split()) for item in value]
    text = value if isinstance(value, str) else json.dumps(value)
    text = re.sub("=[\"']", "=", _COMMENT.sub("", text))  # a value stays with its name
    return list(dict.fromkeys(re.findall(r"[^\s\"']+", text)))
