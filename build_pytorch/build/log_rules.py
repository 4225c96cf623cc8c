"""Log rules: the failures of builds that log_rules.toml names, and which lines they match."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.versions import numbers

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
    machine: bool = False

    def advice(self, variant: Variant | None, log: str) -> str:
        """Return what the user does about the failure of a variant; `log`: path of the log."""
        is_of_pin = self.fix_of_pin and variant and variant.source.is_of_pin
        return (self.fix_of_pin if is_of_pin else self.fix).replace("LOG", log)


RULES: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[LogRule, ...]]
)["rule"]
RULES_BY_ID: Final = {rule.id: rule for rule in RULES}

_PATTERNS: Final = [(rule, [re.compile(p) for p in rule.patterns]) for rule in RULES]
_OF_MESSAGE: Final = "^CMake "  #: how patterns of messages of CMake begin
_NEEDS: Final = [(rule.id, re.compile(need)) for rule in RULES for need in rule.needs]
QUOTES: Final = re.compile(
    r"^\s*\d*\s+\| |: (?:warning|note): |^warning: | warning #\d|^\[ +\w+ +\] "
)
"""Lines that quote: source lines and warnings of compilers, warnings of Nix, test names."""
_WANTS_CUDA: Final = re.compile(
    r"Could NOT find CUDA \(|PyTorch: CUDA |Not compiling with CUDA|\bUSE_CUDA=1\b"
    r"|\bTORCH_CUDA_ARCH_LIST="
)
"""Lines that show that a build without a known variant was meant to be for a GPU."""
_STOP_HINTS: Final = {hint for rule in RULES if rule.stops for hint in rule.hints}
_HINTS: Final = ("CMake ", "CUDA", *sorted(_STOP_HINTS))
"""A line that none of them is in matches no rule that stops builds."""


class LogMatcher:
    """Finds the rule that a line of one build's log matches.

    Without a `variant` rules that compare with it do not match. Those for GPU variants do, but for
    rules that stop builds only after a line that shows that the build was meant to be for a GPU.
    """

    def __init__(self, variant: Variant | None) -> None:
        self.variant = variant
        self._kind = variant.kind if variant else ""
        self._seen: set[str] = set()  #: ids of rules whose `needs` were seen

    def stop(self, text: str, part: BuildPart) -> LogRule | None:
        """Return the first rule that stops builds and that a line or message matches, or None."""
        if not any(hint in text for hint in _HINTS):
            return None
        if not self._kind and _WANTS_CUDA.search(text):
            self._kind = "gpu"
        self._seen.update(rule_id for rule_id, need in _NEEDS if need.search(text))
        return self._first(text, part, self._kind, stops=True)

    def failure(self, text: str, part: BuildPart) -> LogRule | None:
        """Return the first other rule that a line or a message matches, or None."""
        return self._first(text, part, self._kind or "gpu", stops=False)

    def _first(self, text: str, part: BuildPart, kind: str, *, stops: bool) -> LogRule | None:
        """Return the first rule. A message of CMake, written as one line, has no part."""
        is_message = text.startswith("CMake ")
        is_quoted = not is_message and bool(QUOTES.search(text))
        for rule, patterns in _PATTERNS:
            if rule.stops != stops or (len(rule.kinds) == 1 and kind not in rule.kinds):
                continue
            if not is_message and (
                rule.when not in {"", part}
                or rule.quoted < is_quoted
                or not any(hint in text for hint in rule.hints)
            ):
                continue
            if rule.needs and rule.id not in self._seen:
                continue
            for pattern in patterns:
                is_fit = pattern.pattern.startswith(_OF_MESSAGE) == is_message
                if is_fit and self._counts(rule, pattern.search(text)):
                    return rule
        return None

    def _counts(self, rule: LogRule, match: re.Match[str] | None) -> bool:
        if not rule.differs or match is None:
            return match is not None
        return self.variant is not None and _differs(rule.differs, match[1], self.variant)


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
            return numbers(text)[:3] != numbers(variant.release.torch.version)[:3]
    return True
