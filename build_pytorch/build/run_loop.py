"""The run of a plan: one asyncio loop in which no program and no store access blocks another.

Each process is a task: it runs, then its results are looked up, recorded and reported. The loop
starts builds, shows progress and reacts to signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shlex
import signal
import time
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build import schedule
from build_pytorch.build.build_backend import BuildSettings, Step
from build_pytorch.build.build_display import BuildDisplay
from build_pytorch.build.build_outcome import (
    BuildOutcome,
    BuildRecord,
    BuildState,
    decide,
    outcome_of,
    sentence,
)
from build_pytorch.build.build_plan import BuildPlan
from build_pytorch.build.build_process import Attempt, BuildProcess, Ending
from build_pytorch.build.log_rules import HASH_MISMATCH
from build_pytorch.results import evidence

_TICK: Final = 0.25  #: seconds between two updates of the display; events end the wait earlier
_LOOK: Final = 10.0  #: seconds between two looks for finished steps of a process that goes on
_RETRY_SECONDS = 30.0  #: seconds before the first retry of a download
_MOST_DISCARDED: Final = 900.0
"""Combined build seconds of others that may be discarded to stop one build in a shared process."""


class RunState(IntEnum):
    """What a run does; each signal leads to the next state."""

    BUILDING = 0
    ENDING = 1  #: no build begins, and those that run are stopped politely
    KILLING = 2  #: those that run are killed


class BuildRun:
    """Carries out one plan."""

    def __init__(self, plan: BuildPlan, settings: BuildSettings, display: BuildDisplay) -> None:
        self.plan = plan
        self.settings = settings
        self.outcomes: dict[str, BuildOutcome] = {}  #: by name of the step
        self.fixable: list[Path] = []  #: logs of builds that failed for a wrong hash
        self.ended_by = 0  #: the signal that ended the run, or 0
        self._display = display
        self._say = display.say
        self._record = BuildRecord(settings.root, plan.backend.name, display.say)
        is_shared = plan.backend.shares_process
        self._schedule = schedule.Schedule(
            plan.builds, plan.jobs, plan.cores, _RETRY_SECONDS, is_shared=is_shared
        )
        self._processes: dict[BuildProcess, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._state = RunState.BUILDING
        self._news = asyncio.Event()

    def run(self) -> list[BuildOutcome]:
        """Build until nothing is left, and return what became of each build of the plan.

        Ctrl-C and SIGTERM end the builds politely, a second one kills them.
        """
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return asyncio.run(self._run())
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    async def _run(self) -> list[BuildOutcome]:
        # A signal is handled between two events, so none separates a build from its record.
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        try:
            while self._schedule.waiting or self._processes:
                self._begin()
                await _wait_for(self._news, _TICK)
                for process, task in list(self._processes.items()):
                    if task.done():
                        del self._processes[process]
                        task.result()
                self._display.show(self._attempts())
                if self._state is RunState.KILLING:
                    break
        finally:
            for process in self._processes:
                process.kill()
            await asyncio.gather(*self._processes.values(), return_exceptions=True)
        return [self.outcomes[step.name] for step in self.plan.builds]

    def _on_signal(self, number: int) -> None:
        self._state = RunState(min(self._state + 1, RunState.KILLING))
        self.ended_by = self.ended_by or number
        self._news.set()
        if self._state is RunState.ENDING:
            self._say("stopping the builds; a second signal kills them")
            self._put_off(self._schedule.drop(), "the run was ended")
            self._stop_all()

    def _attempts(self) -> list[Attempt]:
        return [attempt for process in self._processes for attempt in process.attempts]

    def _begin(self) -> None:
        while self._state is RunState.BUILDING:
            running = [attempt.step for attempt in self._attempts()]
            ended = [o.step.variant for o in self.outcomes.values() if o.step.is_variant]
            steps = self._schedule.take(time.monotonic(), running, ended, len(self._processes))
            if not steps:
                return
            root = self.settings.root
            changed = [s for s in steps if evidence.recipe_digest(root, s.package) != s.digest]
            self._put_off(changed, "its recipe has changed since the plan; run again")
            for step in changed:
                self._say(sentence(self.outcomes[step.name]))
            if planned := [step for step in steps if step not in changed]:
                self._start(planned)

    def _start(self, steps: Sequence[Step]) -> None:
        attempts = [Attempt(self.settings.root, step, next(self._numbers)) for step in steps]
        cores = min(map(self._schedule.cores, steps))
        command = self.plan.backend.command(steps, self.plan.jobs, cores)
        self._say(f"$ {shlex.join(command.argv)}")
        for attempt in attempts:
            self._record.started(attempt, self._schedule.cores(attempt.step))
        process = BuildProcess(self.plan.backend, attempts, command, self._on_rule)
        task = asyncio.create_task(self._build(process))
        task.add_done_callback(lambda _: self._news.set())
        self._processes[process] = task

    async def _build(self, process: BuildProcess) -> None:
        """Run a process, and conclude its attempts as they end.

        An error fails the attempts that it concerns, and no other build.
        """
        early = asyncio.create_task(self._conclude_finished(process))
        code, failure = 0, None
        try:
            code = await process.run()
        except Exception as error:  # noqa: BLE001 - of any kind
            failure = error
        with contextlib.suppress(Exception):  # a step that it did not conclude is concluded below
            await early
        for attempt in list(process.attempts):
            problem: Exception | None = failure
            try:
                if not problem:
                    await self._conclude(process, attempt, code)
            except Exception as error:  # noqa: BLE001 - of any kind
                problem = error
            if problem:
                is_expected = isinstance(problem, BuildPytorchError)
                what = "" if is_expected else f"internal error: {type(problem).__name__}: "
                outcome = outcome_of(attempt, BuildState.FAILED, f"{what}{problem}")
                self._record.ended(attempt, outcome)
                self._report(outcome)

    async def _conclude_finished(self, process: BuildProcess) -> None:
        """Conclude the finished steps of a shared process, which reports only at its end."""
        while len(process.attempts) > 1:
            await _wait_for(process.news, _LOOK)
            if process.has_ended:
                return
            begun = {id(a.step): a for a in process.attempts if a.progress.began and not a.stopped}
            steps = [attempt.step for attempt in begun.values()]
            for step in await asyncio.to_thread(self.plan.backend.finished, steps):
                if not process.has_ended:
                    process.attempts.remove(begun[id(step)])  # late lines still reach its log
                    await self._conclude(process, begun[id(step)], 0)

    def _on_rule(self, process: BuildProcess, attempt: Attempt) -> None:
        """Stop a build that matched a rule, unless too much work of others would be lost."""
        others = [a for a in process.attempts if a is not attempt and not a.stopped]
        if attempt.stopped and sum(other.seconds for other in others) > _MOST_DISCARDED:
            name, meaning = attempt.step.id, attempt.stopped.rule.meaning
            self._say(f"{name}: {meaning}; not stopped, because others share its process")
        else:
            process.stop(Ending.BY_RULE)

    async def _conclude(self, process: BuildProcess, attempt: Attempt, code: int) -> None:
        """Decide what became of an attempt and record it, then repeat it or report it."""
        step, created = attempt.step, attempt.created
        outputs = await asyncio.to_thread(self.plan.backend.outputs, step, created, code)
        outcome = decide(attempt, code, outputs, was_ended=process.ending is not Ending.NONE)
        self._record.ended(attempt, outcome)
        if not self._is_repeated(process, outcome):
            if outcome.cause == HASH_MISMATCH:
                self.fixable.append(self.settings.root / attempt.log)
            self._report(outcome)

    def _is_repeated(self, process: BuildProcess, outcome: BuildOutcome) -> bool:
        """Put a step back that another build interrupted, or whose failure may pass."""
        step, rule = outcome.step, outcome.rule
        if outcome.state is BuildState.INTERRUPTED:
            is_repeated = process.ending is not Ending.BY_RUN and not self.settings.fail_fast
            if is_repeated:
                self._schedule.put_back(step)
            return is_repeated
        may_pass = outcome.state is BuildState.FAILED and self._state is RunState.BUILDING
        how = self._schedule.retry(step, rule, time.monotonic()) if rule and may_pass else ""
        if rule and how:
            self._say(f"{step.id}: {rule.meaning}; {how} (log: {outcome.log})")
        return bool(how)

    def _report(self, outcome: BuildOutcome) -> None:
        """Keep and print an outcome, and drop what would fail in the same way."""
        self.outcomes[outcome.step.name] = outcome
        self._say(sentence(outcome))
        if self._state is RunState.BUILDING and outcome.state is not BuildState.BUILT:
            self._drop_hopeless(outcome)

    def _drop_hopeless(self, outcome: BuildOutcome) -> None:
        """Drop the steps that need a step that was not built, or that share its fault."""
        step, rule, group = outcome.step, outcome.rule, schedule.kind(outcome.step.variant)
        built = [o.step for o in self.outcomes.values() if o.state is BuildState.BUILT]
        groups_built = {schedule.kind(other.variant) for other in built if other.is_variant}
        if self.settings.fail_fast:
            self._put_off(self._schedule.drop(), f"--fail-fast: {step.id} {outcome.state}")
            self._stop_all()
        elif rule and rule.shared and step.is_variant and group not in groups_built:
            why = f"{step.id} {outcome.state} ({rule.id}), and its group shares that fault"
            self._put_off(self._schedule.drop(step.variant), why)
        needing = self._schedule.drop_needing(step.name)
        self._put_off(needing, f"{step.id} {outcome.state}, and this needs it")

    def _put_off(self, steps: Sequence[Step], why: str) -> None:
        """Give up steps that wait, and the steps that need them."""
        for step in steps:
            self.outcomes[step.name] = BuildOutcome(
                step=step, state=BuildState.NOT_STARTED, message=why
            )
            rest = self._schedule.drop_needing(step.name)
            self._put_off(rest, f"{step.id} not started, and this needs it")

    def _stop_all(self) -> None:
        for process in self._processes:
            process.stop(Ending.BY_RUN)


async def _wait_for(news: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(news.wait(), seconds)
    news.clear()
