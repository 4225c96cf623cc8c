"""Log rules: the failures of builds that log_rules.toml names, and which lines they match."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

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
    fix_of_pin: str = ""
    kinds: tuple[Literal["gpu", "cpu-only"], ...] = ("gpu", "cpu-only")
    needs: tuple[str, ...] = ()
    when: BuildPart = ""
    quoted: bool = False
    stops: bool = False
    shared: bool = False
    differs: Literal["", "capabilities", "architectures", "nvcc-flags", "cuda", "torch"] = ""
    retry: Literal["", "fewer-cores", "once", "later"] = ""
    machine: bool = False

    def advice(self, variant: Variant | None, log: str) -> str:
        """Return what the user does about the failure of a variant; `log`: path of the log."""
        is_of_pin = self.fix_of_pin and variant and variant.source.is_of_pin
        return (self.fix_of_pin if is_of_pin else self.fix).replace("LOG", log)


RULES: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[LogRule, ...]]
)["rule"]
RULES_BY_ID: Final = {rule.id: rule for rule in RULES}


# --- differences from the variant ---


def _differs(what: str, text: str, variant: Variant) -> bool:
    """Whether the first group of a match differs from what the variant has."""
    words = set(re.split(r"[\s;,]+", text.strip(" \"';")))
    code = {variant.gpu.code} if variant.gpu else set()  # 120 for 12.0
    cuda = variant.release.cuda
    match what:
        case "capabilities":  # TORCH_CUDA_ARCH_LIST: with a dot, separated by blanks or semicolons
            return variant.gpu is not None and words != {variant.gpu.capability}
        case "architectures":  # CMAKE_CUDA_ARCHITECTURES: 120-real; OFF: PyTorch sets the flags
            found = {word.removesuffix("-real").rstrip("af") for word in words}
            return found != code and text.upper() not in {"OFF", "FALSE"}
        case "nvcc-flags":  # code=sm_120 for each architecture
            return set(re.findall(r"code=sm_(\d+)[a-z]?", text)) not in (set(), code)
        case "cuda":
            return cuda is not None and not f"{text}.".startswith(f"{cuda.version}.")
        case "torch":  # without a suffix: of a candidate, a nightly, a build, a machine
            return order(text)[:3] != order(variant.release.torch.version)[:3]
    return True


# --- matching ---


_Candidates = tuple[tuple[LogRule, tuple[re.Pattern[str], ...]], ...]
"""Rules with their compiled patterns."""


def _candidates(*, messages: bool) -> _Candidates:
    """Return the rules with patterns of messages of CMake, which begin with `^CMake `, or lines."""
    found = []
    for rule in RULES:
        patterns = [p for p in rule.patterns if p.startswith("^CMake ") == messages]
        found.append((rule, tuple(map(re.compile, patterns))))
    return tuple((rule, patterns) for rule, patterns in found if patterns)


_OF_LINES: Final = _candidates(messages=False)
_OF_MESSAGES: Final = _candidates(messages=True)
_NEEDS: Final = [(rule.id, re.compile(need)) for rule in RULES for need in rule.needs]
_HINTS: Final = dict.fromkeys(hint for rule in RULES for hint in rule.hints)
_WITHIN: Final = tuple(hint for hint in _HINTS if not hint.startswith("-- "))
_STARTS: Final = tuple(hint for hint in _HINTS if hint.startswith("-- "))
QUOTES: Final = re.compile(
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
        is_quoted = bool(QUOTES.search(text))
        possible = tuple(
            (rule, patterns)
            for rule, patterns in _OF_LINES
            if rule.when in {"", part}
            and rule.quoted >= is_quoted
            and any(map(text.__contains__, rule.hints))
        )
        return self._first(possible, text)

    def message(self, text: str) -> LogRule | None:
        """Return the first rule that a message of CMake matches, written as one line, or None."""
        return self._first(_OF_MESSAGES, text)

    def _first(self, candidates: _Candidates, text: str) -> LogRule | None:
        self._needed.update(rule_id for rule_id, need in _NEEDS if need.search(text))
        for rule, patterns in candidates:
            found = filter(None, (pattern.search(text) for pattern in patterns))
            if self._can_match(rule) and any(self._counts(rule, match) for match in found):
                return rule
        return None

    def _can_match(self, rule: LogRule) -> bool:
        is_ready = not rule.needs or rule.id in self._needed
        if self.variant is None:
            depends = rule.differs or len(rule.kinds) == 1
            return is_ready and not (rule.stops and depends)
        return is_ready and self.variant.group.kind in rule.kinds

    def _counts(self, rule: LogRule, match: re.Match[str]) -> bool:
        if self.variant is None or not rule.differs:
            return True
        return _differs(rule.differs, match[1], self.variant)


_KINDS: Final = {
    (True, ""): "These stop a build, because its result would be wrong",
    (False, ""): "These name a failure",
    (False, "fewer-cores"): "After these, the build is started again with fewer cores",
    (False, "once"): "After these, the build is started again once",
    (False, "later"): "After these, the build is started again later",
}
"""What happens at a line that a log rule matches, by `stops` and `retry`."""


def reference_page() -> str:
    """Return the reference page of the log rules, with its digest."""
    lines = [
        "# Log rules",
        "",
        "<!-- Generated from build_pytorch/build/log_rules.toml by `invoke phase5`.",
        f"     Digest of this file, with zeros in place of it: {digest.PLACEHOLDER} -->",
        "",
        "A log rule is a pattern in a build log. `invoke diagnose LOG` prints the one that names",
        "the failure, with its meaning and what to do ([how to](../how-to/read-a-log.md)).",
        "[log_rules.toml](../../build_pytorch/build/log_rules.toml) has the meaning of each, and",
        "sample lines.",
    ]
    for kind, title in _KINDS.items():
        names = [f"`{rule.id}`" for rule in RULES if (rule.stops, rule.retry) == kind]
        lines += ["", f"{title}: {', '.join(names)}."]
    return digest.seal("\n".join(lines) + "\n")
