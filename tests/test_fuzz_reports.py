"""Readers of smoke reports, machine files and ledgers never raise; `nox -s fuzz` tries more."""

from fuzz import reports


def test_no_report_machine_or_ledger_of_others_raises() -> None:
    counts = reports.run(seed=11, count=60)
    assert counts["reports read"]
    assert counts["machines read"]
    assert sum(counts.values()) == 180
