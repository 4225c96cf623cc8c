"""The reference pages about the program: checks and commands."""

from __future__ import annotations

from build_pytorch.base import digest
from build_pytorch.tasks.command import TASKS
from build_pytorch.verify import check

_EXIT_CODES = """## Exit codes

- 0: Done.
- 1: A finding of severity error, a refused file, a package that was not built or published,
  something to do for `--check`, a `doctor` that says wrong, a GPU that no published build uses,
  or a command or option that Invoke does not know.
- 2: Bad input: a wrong value of an option, an unknown package, a wrong matrix.toml, a missing
  program, a folder that cannot be written. Nothing was changed.
- 3: `smoke`, `inspect`: nothing failed, but not everything was tested.
- 130: Interrupted by Ctrl-C (143: by SIGTERM; 129: the terminal was closed).
"""


def reference_pages() -> dict[str, str]:
    """Return the text of each reference page by its path below the root.

    That of commands is left out where Python removes docstrings (-OO), of which it is made.
    """
    pages = {"docs/reference/checks.md": check.reference_page()}
    return (
        pages
        if commands_page.__doc__ is None
        else {**pages, "docs/reference/commands.md": commands_page()}
    )


def commands_page() -> str:
    """Return the reference page of commands, options and exit codes, with its digest."""
    lines = [
        "# Commands",
        "",
        "<!-- Generated from the tasks in build_pytorch/tasks/ by `invoke phase5`.",
        f"     Digest of this file, with zeros in place of it: {digest.PLACEHOLDER} -->",
        "",
        "`invoke --help NAME` explains options. A word in capitals has to be given. PACKAGES are",
        "patterns with commas between them: ids, package names, `'sm90-*'`, a release, `all`, and",
        "states such as `failed`. `nox -s verify -- [OPTIONS]` is `invoke verify`, and",
        '`nox -s "build(VARIANT)" -- [OPTIONS]` is `invoke build VARIANT`.',
        "",
    ]
    last = ""
    for _, task in sorted(TASKS.items()):
        arguments = task.get_arguments(ignore_unknown_help=True)
        names = [task.name, *(it.names[0].upper() for it in arguments if it.positional)]
        options = ", ".join(f"`--{it.names[0]}`" for it in arguments if not it.positional)
        summary = " ".join((task.__doc__ or "").partition("\n\n")[0].split())
        said = "Options as above." if options and options == last else options
        lines.append(f"- `{' '.join(names)}`: {summary} {said}".rstrip())
        last = options
    return digest.seal("\n".join([*lines, "", _EXIT_CODES]))
