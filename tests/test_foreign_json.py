"""JSON of others: any input yields a document or one line that says why not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build_pytorch.base import foreign_json

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(-1e300, 1e300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(deadline=None, max_examples=50)
@given(DOCUMENTS)
def test_a_document_is_what_it_was(document: object) -> None:
    assert foreign_json.decode(json.dumps(document)) == document


@settings(deadline=None, max_examples=50)
@given(st.binary() | st.text())
def test_anything_else_is_a_value_error_of_one_line(data: bytes | str) -> None:
    reason = "none"
    try:
        foreign_json.decode(data)
    except ValueError as error:
        reason = str(error)
    assert len(reason.splitlines()) == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 65 + b"]" * 65, "nested too deeply"),
        (b"9" * 5000, "out of range"),
        (b"1e999", "out of range"),
        (b"[NaN]", "malformed"),
        (rb'["\ud800"]', "truncated|surrogate"),
        ('"\ud800"', "surrogates not allowed"),
        (b"\xef\xbb\xbf{}", "malformed"),
        ("[]".encode("utf-16"), "malformed"),
        (b"", "truncated"),
        (b"[1, 2,]", "trailing comma"),
        (b" " * (foreign_json.MAX_BYTES + 1), "larger than 16384 KiB"),
    ],
)
def test_what_some_programs_cannot_handle_is_refused(data: bytes | str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        foreign_json.decode(data)
    assert foreign_json.decode("[" * 64 + "]" * 64)  # as deep as usual ones
