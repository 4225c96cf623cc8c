"""The reference pages about the program: checks, commands, log rules."""

from __future__ import annotations

from build_pytorch.base import digest, paths
from build_pytorch.base.errors import EXIT_CODES
from build_pytorch.build import log_rules
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.verify import registry


def reference_pages() -> dict[str, str]:
    """Return the text of each reference page by its path below the root."""
    return {
        paths.CHECKS_DOC: registry.reference_page(),
        paths.COMMANDS_DOC: commands_page(),
        paths.LOG_RULES_DOC: log_rules.reference_page(),
    }


def commands_page() -> str:
    """Return the reference page of commands, options and exit codes, with its digest."""
    lines = [
        "# Commands",
        "",
        "<!-- Generated from build_pytorch/cli/commands.py by `invoke phase5`.",
        f"     Digest of this file, with zeros in place of it: {digest.PLACEHOLDER} -->",
        "",
        "`invoke NAME [OPTIONS]` runs a command, `invoke --help NAME` explains its options.",
        "`nox -s NAME -- [OPTIONS]` is the same for `verify`, `prefetch`, `smoke` and `build`;",
        '`nox -s "build(VARIANT)" -- [OPTIONS]` is the same as `invoke build VARIANT [OPTIONS]`.',
        "",
    ]
    lines += [f"- `{command.name}`: {command.summary}" for command in COMMANDS.values()]
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return digest.seal("\n".join(lines) + "\n")
