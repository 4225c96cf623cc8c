"""The rule that a line of a build's log matches."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from build_pytorch.base.versions import order
from build_pytorch.build.log_rules import RULES, LogRule
from build_pytorch.matrix.model import Variant


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

_CMAKE_MESSAGE: Final = "^CMake "
"""How a pattern begins that is compared with messages of CMake; others are compared with lines."""

_QUOTES: Final = re.compile(
    r"^\s*\d*\s+\| |: (?:warning|note): |^warning: | warning #\d|^\[ +\w+ +\] "
)
"""Lines that quote: source lines and warnings of compilers, warnings of Nix, test names."""


class _Candidate(NamedTuple):
    """A rule with its compiled patterns: of lines or of messages of CMake."""

    rule: LogRule
    patterns: tuple[re.Pattern[str], ...]


def _candidates(*, messages: bool) -> tuple[_Candidate, ...]:
    found = []
    for rule in RULES:
        fitting = [p for p in rule.patterns if p.startswith(_CMAKE_MESSAGE) == messages]
        if fitting:
            found.append(_Candidate(rule, tuple(map(re.compile, fitting))))
    return tuple(found)


_OF_LINES: Final = _candidates(messages=False)
_OF_MESSAGES: Final = _candidates(messages=True)
_NEEDS: Final = [(rule.id, re.compile(need)) for rule in RULES for need in rule.needs]
_HINTS: Final = dict.fromkeys(hint for rule in RULES for hint in rule.hints)
_WITHIN: Final = tuple(hint for hint in _HINTS if not hint.startswith("-- "))
_STARTS: Final = tuple(hint for hint in _HINTS if hint.startswith("-- "))


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

    def line(self, text: str, part: str) -> LogRule | None:
        """Return the first rule that a line matches in this part of the build, or None.

        `part` is a value of `when`.
        """
        self._needed.update(rule_id for rule_id, need in _NEEDS if need.search(text))
        is_quoted = bool(_QUOTES.search(text))
        for rule, patterns in _OF_LINES:
            is_possible = rule.when in {"", part} and rule.quoted >= is_quoted
            is_possible = is_possible and any(map(text.__contains__, rule.hints))
            if is_possible and self._matches(rule, patterns, text):
                return rule
        return None

    def message(self, text: str) -> LogRule | None:
        """Return the first rule that a message of CMake matches, written as one line, or None."""
        self._needed.update(rule_id for rule_id, need in _NEEDS if need.search(text))
        fitting = (c.rule for c in _OF_MESSAGES if self._matches(c.rule, c.patterns, text))
        return next(fitting, None)

    def _matches(self, rule: LogRule, patterns: tuple[re.Pattern[str], ...], text: str) -> bool:
        if rule.needs and rule.id not in self._needed:
            return False
        if self.variant and self.variant.group.kind not in rule.kinds:
            return False
        for match in filter(None, (pattern.search(text) for pattern in patterns)):
            if self.variant is None:
                depends = rule.differs or len(rule.kinds) == 1
                return not (rule.stops and depends)
            if not rule.differs or _DIFFERS[rule.differs](match[1], self.variant):
                return True
        return False
