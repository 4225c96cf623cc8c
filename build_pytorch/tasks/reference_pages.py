"""The reference pages about the program: checks and commands."""

from __future__ import annotations

from build_pytorch.base.paths import SHIPPED
from build_pytorch.generate.recipes import render_file
from build_pytorch.tasks.command import TASKS
from build_pytorch.verify import check


def reference_pages() -> dict[str, str]:
    """Return the text of each reference page by its path below the root."""
    commands = []
    for _, task in sorted(TASKS.items()):
        arguments = task.get_arguments(ignore_unknown_help=True)
        names = [task.name, *(it.names[0].upper() for it in arguments if it.positional)]
        options = [f"--{it.names[0]}" for it in arguments if not it.positional]
        summary = " ".join((task.__doc__ or "").partition("\n\n")[0].split())
        commands.append({"usage": " ".join(names), "summary": summary, "options": options})
    page = render_file(SHIPPED, "docs/commands.md.j2", commands=commands)
    return {
        "docs/reference/checks.md": check.reference_page(),
        "docs/reference/commands.md": page,
    }
