"""Log rules: the failures of builds that log_rules.toml names, and which lines they match."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from build_pytorch.base import digest
from build_pytorch.base.versions import order
from build_pytorch.matrix.model import Variant

HASH_MISMATCH: Final = "hash-mismatch"
OUT_OF_MEMORY: Final = "out-of-memory"

BuildPart = Literal["", "downloading", "compiling", "importing"]
"""The part of a build in which a line was written; in a rule, empty means any."""


class LogRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known failure; the fields are explained in log_rules.toml."""

    id: str
    patterns: tuple[str, ...]
    samples: tuple[str, ...]
    hints: tuple[str, ...] = ()
    meaning: str
    fix: str
    kinds: tuple[Literal["gpu", "cpu-only"], ...] = ("gpu", "cpu-only")
    needs: tuple[str, ...] = ()
    when: BuildPart = ""
    quoted: bool = False
    stops: bool = False
    shared: bool = False
    differs: Literal["", "capabilities", "architectures", "nvcc-flags", "cuda", "torch"] = ""
    retry: Literal["", "fewer-cores", "later"] = ""


RULES: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[LogRule, ...]]
)["rule"]


# --- differences from the variant ---


def _words(text: str) -> set[str]:
    return set(re.split(r"[\s;,]+", text.strip(" \"';")))


def _code(variant: Variant) -> set[str]:
    """Return the variant's capability as compilers write it: 120 for 12.0."""
    return set(variant.gpu.code.split(";")) if variant.gpu else set()


def _capabilities_differ(text: str, variant: Variant) -> bool:
    """TORCH_CUDA_ARCH_LIST: capabilities with a dot, separated by blanks or semicolons."""
    return variant.gpu is not None and _words(text) != set(variant.gpu.targets)


def _architectures_differ(text: str, variant: Variant) -> bool:
    """CMAKE_CUDA_ARCHITECTURES: 120 or 120-real; OFF where PyTorch sets the flags itself."""
    found = {word.removesuffix("-real").rstrip("af") for word in _words(text)}
    return found != _code(variant) and text.upper() not in {"OFF", "FALSE"}


def _flags_differ(text: str, variant: Variant) -> bool:
    """PyTorch's flags for nvcc: code=sm_120 for each architecture."""
    found = set(re.findall(r"code=sm_(\d+)[a-z]?", text))
    return bool(found) and found != _code(variant)


def _cuda_differs(text: str, variant: Variant) -> bool:
    cuda = variant.release.cuda
    return cuda is not None and not f"{text}.".startswith(f"{cuda.version}.")


def _torch_differs(text: str, variant: Variant) -> bool:
    """PyTorch's version without a suffix: of a candidate, a nightly, a build, a machine."""
    return order(text)[:3] != order(variant.release.torch.version)[:3]


_DIFFERS: Final[dict[str, Callable[[str, Variant], bool]]] = {
    "capabilities": _capabilities_differ,
    "architectures": _architectures_differ,
    "nvcc-flags": _flags_differ,
    "cuda": _cuda_differs,
    "torch": _torch_differs,
}


# --- matching ---


class _Candidate(NamedTuple):
    """A rule with its compiled patterns: of lines or of messages of CMake."""

    rule: LogRule
    patterns: tuple[re.Pattern[str], ...]


def _candidates(*, messages: bool) -> tuple[_Candidate, ...]:
    """Return the rules with patterns of messages of CMake, which begin with `^CMake `, or lines."""
    found = []
    for rule in RULES:
        fitting = [p for p in rule.patterns if p.startswith("^CMake ") == messages]
        if fitting:
            found.append(_Candidate(rule, tuple(map(re.compile, fitting))))
    return tuple(found)


_OF_LINES: Final = _candidates(messages=False)
_OF_MESSAGES: Final = _candidates(messages=True)
_NEEDS: Final = [(rule.id, re.compile(need)) for rule in RULES for need in rule.needs]
_HINTS: Final = dict.fromkeys(hint for rule in RULES for hint in rule.hints)
_WITHIN: Final = tuple(hint for hint in _HINTS if not hint.startswith("-- "))
_STARTS: Final = tuple(hint for hint in _HINTS if hint.startswith("-- "))
_QUOTES: Final = re.compile(
    r"^\s*\d*\s+\| |: (?:warning|note): |^warning: | warning #\d|^\[ +\w+ +\] "
)
"""Lines that quote: source lines and warnings of compilers, warnings of Nix, test names."""


def is_interesting(line: str) -> bool:
    """Whether a line has a hint of a rule; no other line can match. Takes a microsecond."""
    return line.startswith(_STARTS) or any(map(line.__contains__, _WITHIN))


class LogMatcher:
    """Finds the rule that a line of one build's log matches.

    Without a `variant`, rules that depend on the variant do not match.
    """

    def __init__(self, variant: Variant | None) -> None:
        self.variant = variant
        self._needed: set[str] = set()  #: ids of rules whose `needs` were seen

    def line(self, text: str, part: BuildPart) -> LogRule | None:
        """Return the first rule that a line matches in this part of the build, or None."""
        is_quoted = bool(_QUOTES.search(text))
        possible = [
            candidate
            for candidate in _OF_LINES
            if candidate.rule.when in {"", part}
            and candidate.rule.quoted >= is_quoted
            and any(map(text.__contains__, candidate.rule.hints))
        ]
        return self._first(possible, text)

    def message(self, text: str) -> LogRule | None:
        """Return the first rule that a message of CMake matches, written as one line, or None."""
        return self._first(_OF_MESSAGES, text)

    def _first(self, candidates: Sequence[_Candidate], text: str) -> LogRule | None:
        self._needed.update(rule_id for rule_id, need in _NEEDS if need.search(text))
        return next((c.rule for c in candidates if self._matches(c, text)), None)

    def _matches(self, candidate: _Candidate, text: str) -> bool:
        rule = candidate.rule
        if rule.needs and rule.id not in self._needed:
            return False
        if self.variant and self.variant.group.kind not in rule.kinds:
            return False
        for match in filter(None, (pattern.search(text) for pattern in candidate.patterns)):
            if self.variant is None:
                depends = rule.differs or len(rule.kinds) == 1
                return not (rule.stops and depends)
            if not rule.differs or _DIFFERS[rule.differs](match[1], self.variant):
                return True
        return False


def reference_page() -> str:
    """Return the reference page of the log rules, with its digest."""
    lines = [
        "# Log rules",
        "",
        "<!-- Generated from build_pytorch/build/log_rules.toml by `invoke phase5`.",
        f"     Digest of this file, with zeros in place of it: {digest.PLACEHOLDER} -->",
        "",
        "A log rule is a pattern in the log of a build that names a failure. Some rules stop the",
        "build. [Read the log of a failed build](../how-to/read-a-log.md) shows how to use them.",
        "",
        "| rule | what went wrong | what to do | stops the build | retry |",
        "|---|---|---|---|---|",
    ]
    for rule in RULES:
        fix = rule.fix.replace("|", "\\|")
        stops = "yes" if rule.stops else ""
        row = [f"`{rule.id}`", rule.meaning, fix, stops, rule.retry.replace("-", " ")]
        lines.append(f"| {' | '.join(row)} |")
    return digest.seal("\n".join(lines) + "\n")
