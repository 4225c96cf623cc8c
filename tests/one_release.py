"""A matrix with its first release only."""

from __future__ import annotations

import re

from build_pytorch.matrix import matrix_reader


def first_release(text: str) -> str:
    """A matrix with its first release only, and with what that one names.

    Groups with a folder of their own are left out: all recipes are in one folder.
    """
    matrix = matrix_reader.parse(text)
    first, *others = matrix.releases
    own = matrix.of_release(first)
    kept: dict[str, set[str | None]] = {
        "pin": {matrix.releases[first].nixpkgs.pin},
        "gpu": {variant.gpu_key for variant in own},
        "cpu": {variant.cpu_key for variant in own},
    }
    used = {rule.id for variant in own for rule in variant.effects.rules}
    kept["patch"] = {key for r in matrix.rules if r.id in used for key in r.effect.patches}
    blocks = re.split(r"(?m)^(?=\[)", text)
    rest = []
    for block in blocks:
        found = re.match(r"\[\[?(\w+)(?:\.(\w+))?", block)
        kind, key = found.groups() if found else ("", "")
        rule_id = re.search(r'(?m)^id = "(.*)"', block) if kind == "rule" else None
        goes = (
            (kind == "release" and key in others)
            or (kind in kept and key not in kept[kind])
            or (rule_id is not None and rule_id[1] not in used)
            or (".group]]" in block and "\nfolder = " in block)
        )
        # The comment of the next section is at the end of this block.
        rest.append("\n\n\n" + block.partition("\n\n\n")[2] if goes else block)
    return re.sub(r"\n{4,}", "\n\n\n", "".join(rest))
