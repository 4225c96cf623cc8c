"""`invoke show`: everything about one variant or companion."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from msgspec import to_builtins

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Tree
from build_pytorch.cli.commands import ShowOptions
from build_pytorch.generate import rendering
from build_pytorch.generate.phase_plan import plan_recipe
from build_pytorch.hardware import explain
from build_pytorch.matrix import matrix_reader, rules
from build_pytorch.matrix.matrix_errors import listed
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package, Variant
from build_pytorch.matrix.selection import select_packages
from build_pytorch.matrix.tables import Rule
from build_pytorch.results import evidence, ledger
from build_pytorch.results.evidence import VariantResult
from build_pytorch.results.ledger import Tested

_COLUMN = 11


def run(options: ShowOptions) -> int:
    """Print one package. Raises BuildPytorchError for none, for several and for a wrong name."""
    fleet = matrix_reader.load()
    if not options.variants:
        raise BuildPytorchError(f"name a variant, such as {fleet.variants[0].id}")
    found = select_packages(fleet, options.variants, options.release)
    if len(found) > 1:
        names = listed(package.id for package in found)
        raise BuildPytorchError(f"found {len(found)} variants; name one of them: {names}")
    (package,) = found
    result = evidence.look(options.root, found)[package.attribute]
    recipe = plan_recipe(fleet, Tree(options.root), package, rendering.texts(fleet)[package.path])
    document = _document(fleet, result, {"action": recipe.action, "reason": recipe.reason})
    if options.json:
        print_json(document, sys.stdout)
    else:
        _print(Screen(sys.stdout), document)
    return EXIT_OK


def _document(fleet: Matrix, result: VariantResult, recipe: dict[str, str]) -> dict[str, Any]:
    """Return the package for --json; rules and hardware of a companion are its variant's."""
    package, variant, published = result.package, result.variant, result.published
    return {
        "variant": package.id,
        "package": package.package,
        "pname": package.pname,
        "companion": _companion(package) if isinstance(package, CompanionPackage) else None,
        "companions": [each.id for each in fleet.companions_of(variant)],
        "kind": variant.kind,
        "status": variant.status,
        "reason": variant.impossible or "",
        "release": _release(variant),
        "group": variant.group.title,
        **_hardware(variant),
        "recipe": {"path": package.path, "digest": result.digest, **recipe},
        **_rules(fleet, variant),
        "max_jobs": variant.effects.max_jobs,
        "missing_hashes": list(package.untaken_hashes),
        "result": {
            "output": result.output,
            "stale": result.stale,
            "unknown": result.unknown,
        },
        "evidence": {"smoke": _test(result.smoke), "inspect": _test(result.inspect)},
        "missing_evidence": result.missing_evidence if result.output else "",
        "published": published and to_builtins(published),
        "last_build": _last_build(result),
        "commands": _commands(fleet, package, published.organization if published else ""),
    }


def _release(variant: Variant) -> dict[str, str | None]:
    release = variant.release
    return {
        "name": variant.release_name,
        "purpose": release.purpose,
        "support": release.support,
        "torch": release.torch.version,
        "torch_source": release.torch.source,
        "python": release.python.version,
        "cuda": variant.cuda.version if variant.cuda else None,
        "driver": variant.driver or None,
        "pin": release.nixpkgs.pin,
        "nixpkgs": variant.pin.rev,
    }


def _hardware(variant: Variant) -> dict[str, Any]:
    gpu, cpu = variant.gpu, variant.cpu
    return {
        "gpu": gpu
        and {"key": variant.gpu_key, "arch": gpu.arch_list, "products": variant.products},
        "cpu": {
            "key": variant.cpu_key,
            "title": cpu.title,
            "platform": cpu.platform,
            "flags": cpu.flags,
            "cpuinfo": cpu.cpuinfo,
        },
    }


def _rules(fleet: Matrix, variant: Variant) -> dict[str, Any]:
    """Return the rules that apply, those that are off or no longer needed, and the settings."""
    return {
        "rules": [_rule(rule) for rule in variant.effects.rules],
        "rules_off": to_builtins(variant.effects.off),
        "rules_ended": [
            {"id": rule.id, "until": _pairs(rule.until)}
            for rule in fleet.rules
            if rules.holds(rule.when, variant) and rules.is_ended(rule, variant)
        ],
        "settings": [
            to_builtins(each) | {"variants": list(each.variants)}
            for each in rules.settings_of(variant)
        ],
    }


def _last_build(result: VariantResult) -> dict[str, Any] | None:
    if not (last := result.last):
        return None
    log = f"{paths.STATE}/{ledger.LOGS}/{result.package.attribute}/{last.attempt}.log"
    return {**to_builtins(last), "log": log}


def _commands(fleet: Matrix, package: Package, organization: str) -> dict[str, list[str]]:
    """Return the commands for a package, in the order in which they are needed."""
    if isinstance(package, CompanionPackage):
        found = explain.companion_commands(package, organization)
    else:
        found = explain.commands(package, organization, fleet.companions_of(package))
    found["test"] = [f"invoke smoke {package.id}", f"invoke inspect {package.id}"]
    order = ("build", "test", "publish", "install", "set")
    return {name: found[name] for name in order if name in found}


def _companion(package: CompanionPackage) -> dict[str, str]:
    return {
        "name": package.name,
        "version": package.version,
        "source": package.companion.source,
        "variant": package.variant.id,
        "torch": package.variant.version,
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "when": _pairs(rule.when),
        "effect": _pairs(rule.effect),
        "reason": rule.reason,
        "source": rule.source,
        "checked": rule.checked,
        "until": _pairs(rule.until),
        "unconfirmed": rule.unconfirmed,
    }


def _pairs(table: Any) -> dict[str, Any]:  # noqa: ANN401 - a condition, an effect or None
    """Return the keys of a table that are set."""
    return {key: value for key, value in (to_builtins(table) or {}).items() if value}


def _test(test: Tested | None) -> dict[str, str] | None:
    keys = ("outcome", "at", "reason", "report")
    return {key: getattr(test, key) for key in keys} if test else None


def _effect(effect: dict[str, Any]) -> str:
    words = [f"{name}={value}" for name, value in effect.get("environment", {}).items()]
    for key in ("cmake_flags", "fixes", "config"):
        words += effect.get(key, [])
    words += [f"patch {key}" for key in effect.get("patches", [])]
    return " ".join(words)


def _print(screen: Screen, document: dict[str, Any]) -> None:
    screen.line(screen.paint(document["variant"], "bold"))
    for name, text in _rows(document):
        screen.fold(f"  {name:<{_COLUMN}}", text, indent=_COLUMN + 2)


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the screen; a row without a name continues the one above."""
    release, recipe = document["release"], document["recipe"]
    reason = f": {document['reason']}" if document["reason"] else ""
    yield "status", f"{document['status']}{reason}"
    yield "package", document["package"]
    if own := document["companion"]:
        source = "of its nixpkgs" if own["source"] == "nixpkgs" else "from GitHub"
        text = f"{own['name']} {own['version']} {source}, for PyTorch {own['torch']}"
        yield "companion", f"{text} of {own['variant']}"
    cuda = f", CUDA {release['cuda']}, driver {release['driver']}" if release["cuda"] else ""
    source = "of its nixpkgs" if release["torch_source"] == "nixpkgs" else "from GitHub"
    torch = f"PyTorch {release['torch']} {source}, Python {release['python']}{cuda}"
    yield "release", f"{release['name']}: {torch}"
    yield "nixpkgs", f"{release['nixpkgs']} (pin {release['pin']})"
    yield "support", release["support"]
    if gpu := document["gpu"]:
        yield "gpu", f"{gpu['arch']}: {', '.join(gpu['products'])}"
    cpu = document["cpu"]
    yield "cpu", f"{cpu['title']} ({cpu['platform']}): {' '.join(cpu['flags'])}"
    if document["companions"] and not document["companion"]:
        yield "companions", ", ".join(document["companions"])
    yield "recipe", f"{recipe['path']}: {recipe['action']}, {recipe['reason']}"
    for rule in document["rules"]:
        yield "rule", f"{rule['id']}: {_effect(rule['effect'])}"
        yield "", f"{rule['reason']} ({rule['source']}, checked {rule['checked']})"
        if rule["unconfirmed"]:
            yield "", f"not confirmed: {rule['unconfirmed']}"
    for off in document["rules_off"]:
        yield "rule off", f"{off['rule']}: {off['reason']}"
    for ended in document["rules_ended"]:
        yield "rule ended", f"{ended['id']}: its `until` holds"
    for setting in document["settings"]:
        yield "setting", ", ".join(f"{k} = {v}" for k, v in setting.items() if v)
    yield from _state(document)
    for name, lines in document["commands"].items():
        yield name, "   or   ".join(lines)


def _state(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is known of the result, its evidence and the last build."""
    result = document["result"]
    state = result["output"] or "not built from this recipe"
    if result["stale"]:
        state = f"{result['stale']}, built from another recipe"
    if result["unknown"]:
        state = f"{result['unknown']}, built from an unknown recipe"
    yield "result", state
    if missing := document["missing_hashes"]:
        yield "", f"cannot be built: no hash for {', '.join(missing)}; run `invoke prefetch`"
    for name, test in document["evidence"].items():
        if test:
            why = f": {test['reason']}" if test["reason"] else ""
            yield name, f"{test['outcome']} at {test['at']}{why}; {test['report']}"
    if document["missing_evidence"]:
        yield "evidence", document["missing_evidence"]
    if published := document["published"]:
        yield "published", f"at {published['at']} to {published['organization'] or 'your account'}"
    if last := document["last_build"]:
        cause = f" ({last['cause']})" if last.get("cause") else ""
        yield "last build", f"{last['outcome']} at {last['at']}{cause}; {last['log']}"
