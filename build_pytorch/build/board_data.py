"""The data of the board, from matrix, ledger, store and logs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import files, process
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import LinkError
from build_pytorch.build.build_progress import (
    LONGEST_BUILD,
    TimedBuild,
    earlier_seconds,
    kind_of,
    remaining,
)
from build_pytorch.build.log_diagnosis import LogDiagnosis, diagnose
from build_pytorch.build.log_rules import RULES
from build_pytorch.generate.board import (
    BoardBuild,
    BoardDocument,
    BoardEvent,
    BoardFailure,
    BoardState,
    BoardStep,
    BoardVariant,
    RunningBuild,
)
from build_pytorch.matrix.model import CompanionPackage, Package
from build_pytorch.nix import store
from build_pytorch.results.evidence import subject_of
from build_pytorch.results.ledger import AnyEvent, Ended, Published, Started, Tested
from build_pytorch.results.package_state import PackageState, package_states
from build_pytorch.smoke.smoke_report import CudaFacts
from build_pytorch.verify.check import Finding

RecipeState = tuple[str, Sequence[Finding]]
"""Whether a recipe is `current`, `missing`, `out of date` or `edited`, and its errors."""

_HISTORY: Final = 15  #: events of a variant that the board has
_TAIL: Final = 64 << 10  #: bytes of the end of a log that are read
_EXCERPT: Final = 20  #: lines of a log that are shown
_LONGEST: Final = 500  #: characters of a line that are shown
_MOST_BYTES: Final = 1 << 50  #: larger sizes are none
_RULES: Final = {rule.id: rule for rule in RULES}
_NAMES: Final = {"smoke": "smoke test", "inspect": "inspection"}


class _SmokeScript(msgspec.Struct, frozen=True):
    cuda: CudaFacts


class _SmokeDocument(msgspec.Struct, frozen=True):
    """The part of the report of a smoke test that names the GPU."""

    script: _SmokeScript


def board(
    root: Path,
    packages: Sequence[Package],
    recipes: Mapping[str, RecipeState],
    now: datetime,
    *,
    is_live: bool = False,
) -> BoardDocument:
    """Return the board of variants and companions; `recipes` by id.

    Raises WriteError if the ledger cannot be read, ToolError if Nix fails.
    """
    known = package_states(root, packages)
    outputs = list(dict.fromkeys(it.output for it in known.values() if it.output))
    has_nix = bool(outputs) and process.which(store.NIX_STORE)
    sizes = dict(zip(outputs, store.sizes(outputs), strict=True)) if has_nix else {}
    events = [event for it in known.values() for event in it.events]
    earlier = earlier_seconds(events, map(_timed, known.values()))
    rows = [
        _BoardRow(root, it, recipes[it.package.id], now, earlier.get(subject_of(it.package))).row(
            sizes
        )
        for it in known.values()
    ]
    return BoardDocument(
        at=now.isoformat(timespec="seconds"),
        name=root.name,
        is_live=is_live,
        ledger_lines=len(events),
        variants=tuple(rows),
    )


class _BoardRow:
    """What is known of one variant or companion."""

    def __init__(
        self,
        root: Path,
        result: PackageState,
        recipe: RecipeState,
        now: datetime,
        earlier: float | None,
    ) -> None:
        self.root = root
        self.result = result
        self.recipe, self.errors = recipe
        self.now = now
        self.earlier = earlier
        self.starts = {it.attempt: it for it in result.events if isinstance(it, Started)}

    def row(self, sizes: Mapping[str, int]) -> BoardVariant:
        """Return the row of the board; `sizes` of store paths in bytes."""
        it, package, variant = self.result, self.result.package, self.result.variant
        name = package.name if isinstance(package, CompanionPackage) else ""
        title = f"{variant.gpu.family if variant.gpu else 'No GPU'}, {variant.cpu.title}"
        running, failure = self._running(), self._failure()
        steps = {"inspected": self._test(it.inspection), "smoke": self._test(it.smoke_test)}
        if it.smoke_test and it.smoke_test.report and (gpu := self._gpu(it.smoke_test.report)):
            steps["smoke"] = msgspec.structs.replace(steps["smoke"], detail=gpu)
        return BoardVariant(
            package=package.package,
            variant=package.id,
            release=variant.release_name,
            gpu=variant.gpu_key or "cpu",
            isa=variant.cpu_key,
            title=f"{name}, {title}" if name else title,
            platform=variant.cpu.platform,
            state=self._state(running, failure),
            reason=variant.impossible or "",
            recipe=BoardStep(outcome=self.recipe, is_done=self.recipe == "current"),
            verified=self._verified(),
            built=self._built(),
            **steps,
            published=self._published(),
            build=self._build(sizes.get(it.output)),
            running=running,
            failure=failure,
            history=tuple(self._event(e) for e in self._told()[: -_HISTORY - 1 : -1]),
            earlier=max(0, len(self._told()) - _HISTORY),
        )

    def _told(self) -> list[AnyEvent]:
        """Return the events of the history: a start only if no line says how it ended."""
        ended = {it.attempt for it in self.result.events if isinstance(it, Ended)}
        return [
            it for it in self.result.events if not (isinstance(it, Started) and it.attempt in ended)
        ]

    def _state(self, running: RunningBuild | None, failure: BoardFailure | None) -> BoardState:
        it = self.result
        if running:
            return "building"
        if failure:
            return "failed"
        if it.output:
            if it.organizations:
                return "published"
            return "built" if it.missing_evidence else "tested"
        if it.variant.impossible:
            return "impossible-host"
        if self._lost() or (it.last and it.last.outcome == "interrupted"):
            return "interrupted"
        return "outdated" if it.stale or it.unknown else "not built"

    def _lost(self) -> Started | None:
        """Return the last attempt if it is the last of all builds and no line says its end."""
        builds = [e for e in self.result.events if isinstance(e, Started | Ended)]
        last = builds[-1] if builds else None
        return last if isinstance(last, Started) else None

    def _verified(self) -> BoardStep:
        if self.recipe == "missing":
            return BoardStep()
        if not self.errors:
            return BoardStep(outcome="yes", is_done=True)
        count = len(self.errors)
        return BoardStep(outcome="1 error" if count == 1 else f"{count} errors")

    def _built(self) -> BoardStep:
        it, last = self.result, self.result.last
        if it.output:
            return BoardStep(outcome="yes", is_done=True)
        if it.stale or it.unknown:
            return BoardStep(outcome="stale" if it.stale else "unknown")
        return BoardStep(
            outcome=last.outcome if last and last.outcome != "built" else "no",
            at=last.at if last else "",
        )

    def _test(self, test: Tested | None) -> BoardStep:
        if not test:
            return BoardStep()
        done = test.outcome == "passed"
        return BoardStep(outcome=test.outcome, is_done=done, at=test.at, detail=test.reason)

    def _gpu(self, report: str) -> str:
        """Return the name of the GPU that a smoke test used; empty if its report is gone."""
        try:
            data = files.read_below(self.root, report, files.LARGEST_TEXT)
            cuda = msgspec.json.decode(data, type=_SmokeDocument).script.cuda
        except (OSError, LinkError, ValueError, RecursionError):
            return ""
        names = [each.name for each in cuda.devices if each.index == cuda.device]
        return shortened(names[0], 100) if names and cuda.available else "CPU only"

    def _published(self) -> BoardStep:
        event = self.result.publication
        if not event:
            return BoardStep()
        names = [name or "own account" for name in self.result.organizations]
        outcome = "no evidence" if event.without_evidence else "yes"
        done = outcome == "yes"
        detail = ", ".join(dict.fromkeys(names))
        return BoardStep(outcome=outcome, is_done=done, at=event.at, detail=detail)

    def _build(self, size: int | None) -> BoardBuild | None:
        """Return the last build that succeeded, and that did more than find a result."""
        done = [e for e in self.result.events if isinstance(e, Ended) and e.outcome == "built"]
        if self.result.output:
            done = [e for e in done if self.result.output in e.outputs] or done
        if not done:
            return None
        last = next((e for e in reversed(done) if e.steps), done[-1])
        started = self.starts.get(last.attempt)
        return BoardBuild(
            at=last.at,
            seconds=_seconds(last),
            peak_memory=last.peak_memory if 0 < last.peak_memory < _MOST_BYTES else None,
            where=_host(last.where) or "this machine",
            backend=started.backend if started else "",
            cores=started.cores if started and 0 < started.cores < _LONGEST else 0,
            size=size,
        )

    def _failure(self) -> BoardFailure | None:
        """Return why the variant failed: its recipe, its last build, or a test of its result."""
        it, last = self.result, self.result.last
        if self.errors:
            first = self.errors[0]
            place = f"{first.path}:{first.line}: " if first.line else ""
            return BoardFailure(
                what="recipe",
                cause=first.check,
                reason=f"{place}found {first.found}; expected {first.expected}",
                fix=first.fix or f"`invoke verify --explain {first.check}` describes the check",
                log=first.path,
            )
        if not it.output and last and last.outcome in {"failed", "stopped"} and not self._lost():
            return self._failed_build(last)
        for test in (it.smoke_test, it.inspection):
            if test and test.outcome == "failed":
                command = f"invoke {test.by} {it.package.id}"
                return BoardFailure(
                    what=_NAMES[test.by],
                    at=test.at,
                    reason=test.reason or "see its report",
                    fix=f"read the report, correct the recipe, build again, then `{command}`",
                    log=test.report,
                )
        return None

    def _failed_build(self, last: Ended) -> BoardFailure:
        started = self.starts.get(last.attempt)
        log = started.log if started else ""
        rule = _RULES.get(last.cause)
        diagnosis = self._diagnosis(log)
        command = f"`invoke diagnose {log}`" if log else "`invoke diagnose LOG`"
        again = f"`invoke build {self.result.package.id}`"
        return BoardFailure(
            what="build",
            at=last.at,
            cause=last.cause,
            reason=rule.meaning if rule else "a reason that no log rule names",
            line=shortened(last.message, _LONGEST),
            excerpt="\n".join(diagnosis.tail[-_EXCERPT:]) if diagnosis else "",
            fix=f"{rule.fix.replace('LOG', log or 'LOG')}; then {again}"
            if rule
            else f"read the end of the log, or {command}; then {again}",
            log=log,
        )

    def _diagnosis(self, log: str) -> LogDiagnosis | None:
        """Return what the end of a log says, or None if it cannot be read."""
        if not log:
            return None
        try:
            head, tail = files.ends_below(self.root, log, _TAIL)
        except (OSError, LinkError, ValueError):
            return None
        return diagnose([head, *tail.split(b"\n")], self.result.variant)

    def _running(self) -> RunningBuild | None:
        """Return the build that runs: its last attempt has no end, and its process lives."""
        started = self._lost()
        if started is None or not _is_alive(started.attempt, since := _time(started.at)):
            return None
        elapsed = max(0.0, (self.now - since).total_seconds()) if since else 0.0
        seen = self._diagnosis(started.log)
        done, total = seen.progress if seen and seen.progress else (0, 0)
        return RunningBuild(
            since=started.at,
            elapsed=elapsed,
            phase=seen.phase if seen else "",
            done=done,
            total=total,
            left=remaining(elapsed, done, total, elapsed, self.earlier),
            message=shortened(seen.tail[-1].strip(), 200) if seen and seen.tail else "",
            log=started.log,
        )

    def _event(self, event: AnyEvent) -> BoardEvent:
        match event:
            case Ended():
                where = f"on {_host(event.where)}" if event.where else ""
                why = f"{event.cause}: {event.message}" if event.cause else event.message
                text = shortened("; ".join(filter(None, (where, why))), 200)
                return BoardEvent(
                    at=event.at,
                    what="build",
                    outcome=event.outcome,
                    seconds=_seconds(event),
                    detail=text,
                )
            case Tested():
                reason = shortened(event.reason, 200)
                what = _NAMES[event.by]
                return BoardEvent(at=event.at, what=what, outcome=event.outcome, detail=reason)
            case Published():
                outcome = "without evidence" if event.without_evidence else "published"
                name = event.organization or "own account"
                return BoardEvent(at=event.at, what="publication", outcome=outcome, detail=name)
            case Started():
                is_running = event is self._lost() and _is_alive(event.attempt, _time(event.at))
                outcome = "running" if is_running else "killed"
                return BoardEvent(at=event.at, what="build", outcome=outcome)


def _timed(result: PackageState) -> TimedBuild:
    """Return what decides how long the next build takes: with seeds, if the last one had them."""
    begun = [event for event in result.events if isinstance(event, Started)]
    reads_seeds = bool(begun) and begun[-1].shared
    return TimedBuild(subject_of(result.package), reads_seeds, kind_of(result.package))


def _host(uri: str) -> str:
    """Return the name of a remote builder without its protocol and user."""
    return shortened(re.sub(r"^[a-z-]+://([^@/]*@)?", "", uri), 100)


def _seconds(event: Ended) -> float | None:
    return event.seconds if 0 <= event.seconds < LONGEST_BUILD else None


def _time(text: str) -> datetime | None:
    """Return a time of the ledger, or None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _is_alive(attempt: str, since: datetime | None) -> bool:
    """Whether the process that an attempt names runs here, and ran when the attempt began."""
    found = re.fullmatch(r"[\dT.]+-(\d{1,9})-\d+", attempt)
    if not found or since is None:
        return False
    import psutil  # takes 20 ms to import, and most boards have no unfinished build

    try:
        return psutil.Process(int(found[1])).create_time() <= since.timestamp() + 2
    except psutil.Error:
        return False
