"""`invoke pages` writes the picker and the index. Also the reference pages about the program."""

from __future__ import annotations

import sys

from build_pytorch.base import digest, file_plan, paths
from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_CODES, EXIT_FINDINGS, EXIT_OK
from build_pytorch.base.file_plan import Action, Tree, plan_text
from build_pytorch.build import log_rules
from build_pytorch.cli import package_index
from build_pytorch.cli.commands import COMMANDS, PagesOptions
from build_pytorch.generate import rendering
from build_pytorch.matrix import matrix_reader
from build_pytorch.verify import registry


def run(options: PagesOptions) -> int:
    """Write page and index. Raises BuildPytorchError.

    Returns 1 if the page was edited by hand; with `check`, also if it would change. Nothing
    compares the index, which changes with the ledger.
    """
    matrix = matrix_reader.load(options.root)
    text = rendering.texts(matrix)[paths.PICKER]
    change = plan_text(Tree(options.root, force=options.force), paths.PICKER, text)
    if not options.check:
        file_plan.apply(options.root, [change])
        package_index.write(options.root, matrix)
    screen = Screen(sys.stderr)
    suffix = " (nothing written)" if options.check else ""
    file_plan.print_plan(screen, [change], suffix=suffix)
    if change.action is Action.REFUSED:
        screen.diff(change.diff())
    if not options.check:
        screen.line(f"written: {paths.INDEX}, the index with what the ledger knows")
    pending = options.check and change.action.writes
    return EXIT_FINDINGS if pending or change.action is Action.REFUSED else EXIT_OK


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
