"""Programs, files and output: what all commands are built on."""

from __future__ import annotations

import io
import os
import time
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from build_pytorch.base import console, digest, files
from build_pytorch.base.console import Screen, visible, waiting
from build_pytorch.base.errors import WriteError
from build_pytorch.base.file_plan import Action
from build_pytorch.generate.text_plan import Tree, plan_text

# --- files ---


def test_an_atomic_write_keeps_permissions_and_follows_no_link(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    with pytest.raises(OSError, match="link is a symbolic link and is not followed"):
        files.write_all(tmp_path, {"link": b"new"})
    assert (path.read_text(), link.is_symlink()) == ("old", True)
    files.write_all(tmp_path, {"file": b"new"})
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert set(tmp_path.iterdir()) == {path, link}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_names_the_file_and_leaves_the_old_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, call, fail)
    message = "file: cannot be written: No space left on device"
    with pytest.raises(WriteError, match=message), files.write_errors():
        files.write_all(tmp_path, {"file": b"new"})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    message = "none: cannot be written: No such file or directory"
    with pytest.raises(WriteError, match=message), files.write_errors():
        files.write_all(tmp_path / "none", {"file": b"new"})


SEALED = digest.seal(f"# Digest of this file, with zeros in place of it: {digest.PLACEHOLDER}\n")


def test_a_file_far_larger_than_what_is_generated_is_not_compared(tmp_path: Path) -> None:
    with (tmp_path / "x.nix").open("wb") as file:
        file.truncate(60 << 20)
    change = plan_text(Tree(tmp_path, force=True), "x.nix", SEALED)
    assert (change.action, change.diff()) == (Action.REFUSED, "")
    assert change.reason == "cannot be read: larger than 4 MiB; remove it by hand"


# --- output ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def xterm(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return Terminal()


def test_a_line_is_shown_while_a_block_waits_and_removed(xterm: Terminal) -> None:
    with redirect_stderr(xterm), waiting("evaluating [bold] \x1b[1m"):
        pass
    assert "evaluating [bold] \\x1b[1m" in xterm.getvalue()
    assert "\x1b[1m" not in xterm.getvalue()
    assert xterm.getvalue().endswith("\x1b[1A\x1b[2K")
    with pytest.raises(KeyboardInterrupt), redirect_stderr(xterm), waiting("installing") as line:
        raise KeyboardInterrupt(line.update("12 of 44"))  # type: ignore[func-returns-value]
    shown = xterm.getvalue()
    assert "12 of 44" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is there again"


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO(), "xterm"), (Terminal(), "dumb")])
def test_no_line_is_shown_where_it_cannot_be_removed(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with redirect_stderr(stream), waiting("evaluating") as line:
        line.update("evaluating 2")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zen 4, \u00dcbung \u4e2d", "Zen 4, \u00dcbung \u4e2d"),
        ("two\nlines", "two\nlines"),
        ("\x1b[2J\x07\x00\x7f\r\t", r"\x1b[2J\x07\x00\x7f\r\t"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("\u202egnp.exe\u2028", r"\u202egnp.exe\u2028"),
        ("\udcff \ud800", r"\udcff \ud800"),
    ],
)
def test_control_characters_are_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert visible(text) == visible(shown) == shown


def test_packages_with_one_reason_are_shown_together_unless_each_is_wanted() -> None:
    """A reason that names its package is the same reason for another one."""
    names = [f"cpu-{number}" for number in range(5)]
    rows = [("refused", name, f"no; `build {name}`") for name in names]
    rows += [("publish", "cpu-5", "passed"), ("refused", "cpu-6", "failed; `invoke build cpu-6`")]

    def shown(*, verbose: bool) -> list[str]:
        out = io.StringIO()
        Screen(out).plan(rows, {}, verbose=verbose)
        return out.getvalue().splitlines()

    assert shown(verbose=False) == [
        "  refused     5 (cpu-0 cpu-1 cpu-2 and 2 more): no; `build ID`",
        "  publish     cpu-5  passed",
        "  refused     cpu-6  failed; `invoke build cpu-6`",
    ]
    assert shown(verbose=True)[:2] == [
        "  refused     cpu-0  no; `build cpu-0`",
        "  refused     cpu-1  no; `build cpu-1`",
    ]
    assert len(shown(verbose=True)) == len(rows)


def test_messages_name_the_program_that_runs_and_diffs_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["/bin/build-pytorch"])
    screen = Screen(output := io.StringIO())
    for show in (screen.line, screen.diff):
        show("+ `invoke all`")
    assert output.getvalue() == "+ `build-pytorch all`\n+ `invoke all`\n"


def test_a_command_is_in_one_line_also_where_it_is_longer_than_one() -> None:
    longer = f"`invoke build {'sm120-avx512 ' * 8}--dry-run`"
    lines = console.folded("", f"run {longer} or a `b` c`", indent=2)
    assert [line.strip() for line in lines] == ["run", longer, "or a `b` c`"]
    command = "`invoke prefetch --only torch --release cuda13_0`"
    for length in range(1, 80):
        text = f"{'x' * length} run {command}, or (see `man nix`); then again {command}."
        lines = console.folded("    fix:      ", text, indent=14)
        assert max(map(len, lines)) <= max(80, 14 + length)
        assert "".join(lines).count("`") == 6
        assert sum(line.count(command) for line in lines) == 2
        assert sum(line.count("`man nix`") for line in lines) == 1
        assert " ".join(" ".join(lines).split()) == f"fix: {text}"


@pytest.mark.parametrize("text", ["x" * 200_000, "`" + "x" * 200_000, "x` " * 70_000])
def test_a_long_word_is_printed_at_once(text: str) -> None:
    start = time.monotonic()
    Screen(io.StringIO()).fold("error: ", text)
    assert time.monotonic() - start < 1
