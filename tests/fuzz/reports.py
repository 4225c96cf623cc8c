"""Smoke reports, ledgers and machine files by others, drawn from a seed.

Whatever they hold, they are read or refused; nothing raises, and no control character is printed.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs, to_builtins

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.cli import describe_machine
from build_pytorch.cli.smoke import show_case
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import choose
from build_pytorch.matrix import matrix_reader
from build_pytorch.results import evidence, package_state
from build_pytorch.results.ledger import FILE
from build_pytorch.smoke import smoke_report
from build_pytorch.smoke.smoke_case import case_of, judge_run
from fuzz.fields import places

TESTS = Path(__file__).resolve().parents[1]
MATRIX = matrix_reader.load(TESTS.parent)
REPORTS = [path.read_text() for path in sorted((TESTS / "fixtures/smoke").glob("*.json"))]
MACHINES = [path.read_text() for path in sorted((TESTS / "machines").glob("*.json"))]
EVENT = {"at": "2026-11-20T10:00:00.000+00:00", "release": "cuda13_0", "variant": "sm90-avx2"}
TESTED = {"event": "tested", "by": "smoke", "outcome": "passed", "output": "/nix/store/x"}
EVENTS: list[dict[str, Any]] = [
    {"event": "started", **EVENT, "digest": "d", "attempt": "a", "backend": "nix", "cores": 4},
    {"event": "ended", **EVENT, "digest": "d", "attempt": "a", "outcome": "built", "seconds": 1.5},
    {**EVENT, **TESTED, "digest": "d"},
    {"event": "published", **EVENT, "digest": "d", "organization": "o", "output": "/nix/store/x"},
]

VALUES: list[Any] = [
    *(None, True, -1, 0, 10**30, 1.5, 1e308, -0.0),
    *("", "x", "8", "9.0.1", "\0", "\x1b[2J", "\u009b31m", "\u202e", "../../x", "x" * 5000),
    *("9" * 5000, "\U0010ffff", "${x}", "a\nb", "580.65.06", "12.0", "/nix/store/../x"),
    *([], {}, [[]], ["x"] * 1000, {"a": 1}, {"": ""}, [None], [{}]),
]
PIECES = [*'"\\[]{},:', "\x00", "\x1b", "null", "1e999", "9" * 5000, "[" * 3000, '{"a":' * 3000]
PIECES += ["\\ud800", "NaN", "\ufeff", "-"]


def run(seed: int, count: int) -> Counter[str]:
    """Try so many texts of each of the three kinds. Raises what a reader should not raise."""
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    kinds: dict[str, tuple[list[str], Callable[[random.Random, str], bool]]] = {
        "reports": (REPORTS, read_report),
        "machines": (MACHINES, read_machine),
        "ledgers": (["\n".join(map(json.dumps, EVENTS)) + "\n"], read_ledger),
    }
    for kind, (originals, read) in kinds.items():
        for _ in range(count):
            text = broken(draw, draw.choice(originals))
            counts[f"{kind} {'read' if read(draw, text) else 'refused'}"] += 1
    return counts


def read_report(draw: random.Random, text: str) -> bool:
    """Judge a report, print it, and write it as --json does."""
    found = smoke_report.parse(text)
    if found.report is None:
        return not visible_only(found.problem)
    variant = draw.choice(MATRIX.variants)
    case = structs.replace(case_of(variant, judge_run(found, variant, None)), script=found.raw)
    out = io.StringIO()
    show_case(Screen(out), variant, case, found.report)
    print_json(to_builtins(case), io.StringIO())
    evidence.record_evidence(STATE, variant, None, test="smoke", result=case)
    assert visible_only(out.getvalue()), text
    return True


def read_machine(draw: random.Random, text: str) -> bool:
    """Recommend a variant for a machine, as the command prints it."""
    try:
        machine = saved_machines.parse(text.encode("utf-8", "surrogatepass"), "machine.json")
    except BuildPytorchError:
        return False
    out = io.StringIO()
    describe_machine.print_machine(Screen(out), machine, MATRIX.cpus.values())
    with contextlib.suppress(BuildPytorchError):  # it has no GPU 0
        choose(MATRIX, machine, gpu=draw.choice((None, None, 0)))
    assert visible_only(out.getvalue()), text
    return True


def read_ledger(draw: random.Random, text: str) -> bool:
    """Ask a ledger for what is known of variants."""
    (STATE / paths.STATE).mkdir(exist_ok=True)
    data = text.encode("utf-8", "surrogatepass")
    (STATE / paths.STATE / FILE).write_bytes(data)
    some = draw.sample(MATRIX.variants, 3)
    known = package_state.package_states(STATE, some)
    return bool([each.missing_evidence for each in known.values()])


def visible_only(text: str) -> bool:
    """Whether a text has no control characters besides newlines."""
    return text.replace("\n", "").isprintable()


def broken(draw: random.Random, text: str) -> str:
    """Return the text with up to five mistakes."""
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        try:
            lines = text.splitlines() if text.count("\n{") else [text]
            number = draw.randrange(len(lines) or 1)
            lines[number] = of_value(draw, lines[number]) if draw.random() < 0.7 else lines[number]
            text = "\n".join(lines)
        except (ValueError, RecursionError, IndexError, TypeError):  # no JSON any more
            pass
        if draw.random() < 0.35:
            place = draw.randrange(len(text) + 1)
            cut = draw.choice((0, 0, 1, 10, 10**6))
            text = text[:place] + draw.choice(("", *PIECES)) + text[place + cut :]
    return text


def of_value(draw: random.Random, text: str) -> str:
    """Replace, add, rename or remove one value of a JSON document."""
    document = json.loads(text)
    changed = copy.deepcopy(document)
    *way, last = draw.choice(list(places(changed)))
    parent: Any = changed
    for step in way:
        parent = parent[step]
    match draw.randrange(6):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, dict):
            parent[draw.choice(["x", "\x1b", "", "name", "schema"])] = draw.choice(VALUES)
        case 2 if isinstance(parent[last], str):
            parent[last] += draw.choice([v for v in VALUES if isinstance(v, str)])
        case 3:
            parent[last] = nested(draw.choice((30, 300, 800)))
        case _:
            parent[last] = draw.choice(VALUES)
    return json.dumps(changed)


def nested(depth: int) -> Any:
    """Return lists in lists."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


STATE = Path(tempfile.mkdtemp(prefix="build-pytorch-fuzz-"))
