"""Log rules: the failures of builds that log_rules.toml names, and their reference page."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base import digest

HASH_MISMATCH: Final = "hash-mismatch"
OUT_OF_MEMORY: Final = "out-of-memory"


class LogRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known failure; the fields are explained in log_rules.toml."""

    id: str
    patterns: tuple[str, ...]
    hints: tuple[str, ...] = ()
    meaning: str
    fix: str
    kinds: tuple[Literal["gpu", "cpu-only"], ...] = ("gpu", "cpu-only")
    needs: tuple[str, ...] = ()
    when: Literal["", "downloading", "compiling", "importing"] = ""
    quoted: bool = False
    stops: bool = False
    shared: bool = False
    differs: Literal["", "capabilities", "architectures", "nvcc-flags", "cuda", "torch"] = ""
    retry: Literal["", "fewer-cores", "later"] = ""


RULES: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[LogRule, ...]]
)["rule"]


def reference_page() -> str:
    """Return the reference page of the log rules, with its digest."""
    lines = [
        "# Log rules",
        "",
        "<!-- Generated from build_pytorch/build/log_rules.toml by `invoke phase5`.",
        f"     Digest of this file, with zeros in place of it: {digest.PLACEHOLDER} -->",
        "",
        "A log rule is a pattern in the log of a build that names a failure. Some rules stop the",
        "build. [Read the log of a failed build](../how-to/read-a-log.md) shows how to use them.",
        "",
        "| rule | what went wrong | what to do | stops the build | retry |",
        "|---|---|---|---|---|",
    ]
    for rule in RULES:
        fix = rule.fix.replace("|", "\\|")
        stops = "yes" if rule.stops else ""
        row = [f"`{rule.id}`", rule.meaning, fix, stops, rule.retry.replace("-", " ")]
        lines.append(f"| {' | '.join(row)} |")
    return digest.seal("\n".join(lines) + "\n")
