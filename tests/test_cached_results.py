"""Results that are not here: in a binary cache, or in the catalog of Flox."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from sample_fleet import LAST, Checkout

from build_pytorch.base.errors import ToolError
from build_pytorch.results import ledger
from build_pytorch.results.package_state import PackageState, package_states

URL = "https://cache.example.org"


def built_elsewhere(checkout: Checkout) -> str:
    """The result of a build of cpu-avx2 on another machine, of which only the ledger is here."""
    output = f"{checkout.store}/{'a' * 32}-python3.13-pytorch-cpu-avx2-2.10.0"
    start = checkout.started(checkout.package("cpu-avx2"), LAST)
    checkout.ended(start, "built", 60.0, outputs=(output,))
    return output


def nix_says(checkout: Checkout, monkeypatch: pytest.MonkeyPatch, text: str, code: int = 0) -> Path:
    """Put a `nix` on PATH that prints a text. Return the file with the arguments that it got."""
    program, seen = checkout.root / "bin/nix", checkout.root / "argv"
    program.parent.mkdir(exist_ok=True)
    stream = 2 if code else 1
    program.write_text(f"#!/bin/sh\necho \"$@\" >{seen}\necho '{text}' >&{stream}\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return seen


def state(checkout: Checkout, store: str = URL) -> PackageState:
    package = checkout.packages["cpu-avx2"]
    return package_states(checkout.root, [package], store=store)["cpu-avx2"]


def test_a_result_in_a_cache_counts_as_built_with_its_tests(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = built_elsewhere(checkout)
    forms = (
        [{"path": output, "narSize": 1}, {"path": "/x", "valid": False}],  # until Nix 2.18
        {output: {"narSize": 1}, "/x": None},
    )
    for form in forms:
        seen = nix_says(checkout, monkeypatch, json.dumps(form))
        found = state(checkout)
        assert (found.overall, found.built, found.elsewhere) == ("built", "elsewhere", URL)
        assert found.output == ""  # nothing to publish or to run here
        assert f"path-info --json --store {URL} {output}" in seen.read_text()
    assert state(checkout, store="").overall == "not built"
    common = checkout.common(checkout.packages["cpu-avx2"], LAST + timedelta(hours=1))
    checkout.append(ledger.Tested(**common, output=output, by="smoke", outcome="passed"))
    assert state(checkout).overall == "tested"


@pytest.mark.parametrize("form", [[{"path": "{}", "valid": False}], {"{}": None}, []])
def test_a_result_that_the_cache_lacks_does_not_count(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, form: object
) -> None:
    output = built_elsewhere(checkout)
    nix_says(checkout, monkeypatch, json.dumps(form).replace("{}", output))
    assert (state(checkout).overall, state(checkout).elsewhere) == ("not built", "")


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("error: no such host", 1, f"--store {URL}: cannot be read: error: no such host"),
        ("[1]", 0, "not JSON of a known form"),
        ("<html>", 0, "not JSON of a known form"),
    ],
)
def test_a_cache_that_cannot_be_read_is_one_line(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, text: str, code: int, says: str
) -> None:
    built_elsewhere(checkout)
    nix_says(checkout, monkeypatch, text, code)
    with pytest.raises(ToolError, match=says):
        state(checkout)


def test_without_a_recipe_no_cache_has_the_result(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    nix_says(checkout, monkeypatch, "[]")
    assert state(checkout).overall == "not built"


def test_a_published_result_counts_where_it_is_not_here(checkout: Checkout) -> None:
    output = built_elsewhere(checkout)
    common = checkout.common(checkout.packages["cpu-avx2"], LAST + timedelta(hours=1))
    checkout.append(ledger.Published(**common, output=output, organization="acme"))
    found = state(checkout, store="")
    assert (found.overall, found.elsewhere) == ("published", "Flox: acme")
    (checkout.root / checkout.packages["cpu-avx2"].path).write_text("another recipe")
    assert state(checkout, store="").overall == "not built"
