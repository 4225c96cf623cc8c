"""A matrix with one release only, or with some."""

from __future__ import annotations

import re
from collections.abc import Iterable

from build_pytorch.matrix import defaults, known_hardware, matrix_reader, matrix_text


def one_release(text: str, name: str = "cuda13_0") -> str:
    """A matrix with one release only, and with what that one names.

    Groups with a folder of their own are left out: all recipes are in one folder.
    """
    blocks = re.split(r"(?m)^(?=\[)", with_releases(text, name))
    return "".join(it for it in blocks if not (".group]]" in it and "\nfolder = " in it))


def with_releases(text: str, *names: str) -> str:
    """A matrix with some of its releases, and with the pins that those name."""
    releases = matrix_reader.parse(text).releases
    pins = {releases[name].nixpkgs.pin for name in names}
    rest = []
    for block in re.split(r"(?m)^(?=\[)", text):
        found = re.match(r"\[\[?(\w+)(?:\.(\w+))?", block)
        kind, key = found.groups() if found else ("", "")
        if not ((kind == "release" and key not in names) or (kind == "pin" and key not in pins)):
            rest.append(block)
    return "".join(rest)


def written_out(text: str) -> str:
    """A matrix with what is known of its pins, hardware and rules in tables of its own."""
    matrix, known = matrix_reader.parse(text), known_hardware.load().raw
    blocks = [re.split(r"(?m)^(?=\[pin\.)", text)[0]]
    if len(matrix.releases) == 1:  # other names are those of its versions
        for name, value in {"torch": "210", "python": "313", "cuda": "13_0"}.items():
            blocks[0] = blocks[0].replace(f"{{{name}}}", value)
        place = ("release", "cuda13_0", "cuda", "driver")
        driver = known["cuda"]["13.0"]["driver"]
        blocks = [matrix_text.with_values(blocks[0], {place: driver})]
    rows_of: dict[str, Iterable[str]]
    used = {(v.gpu_key, v.cpu_key) for v in matrix.variants}
    gpus, cpus = ({pair[axis] for pair in used} for axis in (0, 1))
    rows_of = {
        "pin": matrix.pins,
        "gpu": [key for key in matrix.gpus if key in gpus],
        "cpu": [key for key in matrix.cpus if key in cpus],
    }
    for kind, rows in rows_of.items():
        for key in rows:
            row = {k: v for k, v in known[kind][key].items() if k not in defaults.OF_PRODUCTS}
            more = row.pop("facts", None)
            blocks.append(matrix_text.block((kind, key), row))
            blocks += [matrix_text.block((kind, key, "facts"), more)] if more else []
    applied = {rule.id for variant in matrix.variants for rule in variant.effects.rules}
    rules = [rule for rule in known["rule"] if rule["id"] in applied]
    blocks += [matrix_text.block(("rule", 0), rule) for rule in rules]
    patches = {key for rule in rules for key in rule["effect"].get("patches", ())}
    blocks += [matrix_text.block(("patch", key), known["patch"][key]) for key in patches]
    return "\n".join(blocks)
