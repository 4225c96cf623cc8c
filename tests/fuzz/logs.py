"""Lines of build logs, changed at random from a seed.

Whatever they hold, they are read in bounded time; nothing raises, and neither the terminal nor a
log gets a control character.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from build_pytorch.base.console import Screen, print_json
from build_pytorch.build.build_backend import Step
from build_pytorch.build.build_outcome import BuildOutcome, BuildState, sentence
from build_pytorch.build.build_progress import BuildProgress, diagnose
from build_pytorch.build.log_reader import TextLogReader, named
from build_pytorch.build.log_rules import RULES
from build_pytorch.cli.diagnose import document, show
from build_pytorch.matrix import matrix_reader
from build_pytorch.nix.log_format import NixLogReader

TESTS = Path(__file__).resolve().parents[1]
MATRIX = matrix_reader.load(TESTS.parent)
LINES = [
    line for p in sorted((TESTS / "logs").glob("*.log")) for line in p.read_bytes().split(b"\n")
]
LINES += [hint.encode() for rule in RULES for hint in rule.hints]
LINES += [b"CMake Warning at x:1 (message):", b"  wrapped", b"FAILED: x"]
LINES += [b"@nix " + json.dumps(record).encode() for record in (
    {"action": "start", "id": 1, "type": 105, "fields": ["/nix/store/x.drv", "ssh://x"]},
    {"action": "start", "id": 2, "type": 101, "text": "downloading x"},
    {"action": "result", "id": 1, "type": 101, "fields": ["--   USE_CUDA              : OFF"]},
    {"action": "result", "id": 1, "type": 104, "fields": ["buildPhase"]},
    {"action": "msg", "level": 0, "msg": "error: hash mismatch in fixed-output\n specified: x"},
    {"action": "stop", "id": 1},
)]  # fmt: skip
PIECES = [
    *("\x1b[2J", "\x1b]8;;file:///etc\x07x\x1b]8;;\x07", "\x1b]0;t\x07", "\x1bP1$r\x1b\\", "\x1b"),
    *("\u009b31m", "\r", "\r\n", "\0", "\x7f", "\b\b", "\x0c", "\t", "\\ud800", "x" * 70_000),
    *("\u202e", "\u2066", "\u200b", "\ufeff", "\U000e0041", "\u2028", "\u0085", "\U0010ffff"),
    *("[1/" + "9" * 4301 + "] ", "[" * 3000, '{"a":' * 3000, "9" * 5000),
    *("::stop-commands::x", "##[error]", "@nix ", '@nix {"action":"msg","msg":"\\u001b[2J"}'),
    *("$ nix-build x", "error: ", "       > ", "magma> "),
]
LIMIT = 2.0  #: seconds of CPU for a line of 70 kB


def run(seed: int, count: int) -> Counter[str]:
    """Read at least so many changed lines. Raises what a reader must not raise, AssertionError."""
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    while counts["lines"] < count:
        lines = [changed(draw) for _ in range(draw.randint(1, 60))]
        counts["lines"] += len(lines)
        counts[f"log {read(draw, lines)}"] += 1
    return counts


def changed(draw: random.Random) -> bytes:
    """Return a line of a log with some changes, or a long line of pieces that patterns look for."""
    if draw.random() < 0.03:
        part = draw.choice(LINES)[: draw.randint(1, 40)] + draw.choice([b"", b" ", b": ", b"."])
        return part * (draw.choice([10, 70_000]) // (len(part) or 1))
    line = draw.choice(LINES)
    for _ in range(draw.randint(0, 3)):
        at, to = sorted((draw.randint(0, len(line)), draw.randint(0, len(line))))
        change: Callable[[], bytes] = draw.choice(
            [
                lambda: line[:at] + draw.choice(PIECES).encode() + line[at:],  # noqa: B023 - called at once
                lambda: line[:at] + line[to:],  # noqa: B023
                lambda: line[:at] + draw.randbytes(2) + line[at + 2 :],  # noqa: B023
                lambda: line[:at] + draw.choice(LINES)[to:],  # noqa: B023
            ]
        )
        line = change()
    return line


def read(draw: random.Random, lines: list[bytes]) -> str:
    """Read lines as a build and as `invoke diagnose` do, and print what they show."""
    variant = draw.choice(MATRIX.variants)
    readers: list[NixLogReader | TextLogReader] = [
        NixLogReader(),
        TextLogReader(variant.package),
    ]
    reader, progress = draw.choice(readers), BuildProgress(variant)
    for raw in lines:
        begin = time.process_time()
        for line in reader.read(raw):
            shown = named(line) if draw.random() < 0.2 else line
            progress.see(shown, 0.0, own=draw.random() < 0.8)
        assert time.process_time() - begin < LIMIT, raw[:200]
    cause = progress.cause()
    rule, message = (cause.rule, cause.text) if cause else (None, progress.message)
    step = Step(package=variant, action="build", reason="", digest="")
    outcome = BuildOutcome(
        step=step, state=BuildState.FAILED, rule=rule, message=message, tail=tuple(progress.tail)
    )
    out = io.StringIO()
    Screen(out).line(sentence(outcome))
    diagnosis = diagnose(lines, draw.choice([variant, None]))
    show(Screen(out), "x.log", diagnosis)
    print_json(document(diagnosis), out)
    assert all(c.isprintable() or c == "\n" for c in out.getvalue())
    return "stopped" if diagnosis.stop else "named" if diagnosis.failure else "unnamed"
