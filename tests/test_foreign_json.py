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
    max_leaves=20,
)


@settings(deadline=None)
@given(DOCUMENTS)
def test_a_document_is_what_it_was(document: object) -> None:
    assert foreign_json.decode(json.dumps(document)) == document
    assert foreign_json.decode(json.dumps(document, ensure_ascii=False).encode()) == document


@settings(deadline=None)
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
        (b"[" * 100 + b"]" * 100, "nested too deeply"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested too deeply"),
        (b'{"a": 1, "b": 2, "a": 3}', 'the key "a" twice'),
        (b"9" * 5000, "a number of 5000 digits"),
        (b"1e999", "too large"),
        (b"[NaN]", "NaN, which is not JSON"),
        (b"-Infinity", "-Infinity, which is not JSON"),
        (rb'["\ud800"]', "surrogates not allowed"),
        (rb'{"\udfff": 1}', "surrogates not allowed"),
        (b"\xff", "can't decode"),
        (b"\xef\xbb\xbf{}", "BOM"),
        ("[]".encode("utf-16"), "can't decode"),
        (b"", "Expecting value"),
        (b"[1, 2,]", "Illegal trailing comma|Expecting value"),
        (b" " * (foreign_json.MAX_BYTES + 1), "larger than 16384 KiB"),
    ],
)
def test_what_some_programs_cannot_handle_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        foreign_json.decode(data)


def test_a_document_of_usual_depth_is_accepted() -> None:
    assert foreign_json.decode("[" * 60 + "]" * 60)
