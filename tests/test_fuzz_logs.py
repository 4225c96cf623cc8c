"""Readers of build logs never raise, hang or print control characters; `nox -s fuzz` tries more."""

from fuzz import logs


def test_no_line_of_a_log_raises_or_reaches_the_terminal_as_it_is() -> None:
    counts = logs.run(seed=11, count=10_000)
    assert counts["lines"] >= 10_000
    assert counts["log stopped"]
    assert counts["log named"]
