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

from build_pytorch.base.console import Screen
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
from build_pytorch.build.build_process import Attempt, BuildProcess
from build_pytorch.build.log_rules import HASH_MISMATCH
from build_pytorch.results import evidence
from build_pytorch.results.ledger import only_run

_TICK: Final = 0.25  #: seconds between two updates of the display; events end the wait earlier
_RETRY_SECONDS = 30.0  #: seconds before the first retry of a download


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
        self._schedule = schedule.Schedule(plan.builds, plan.jobs, plan.cores, _RETRY_SECONDS)
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
        return [process.attempt for process in self._processes]

    def _begin(self) -> None:
        while self._state is RunState.BUILDING:
            running = [attempt.step for attempt in self._attempts()]
            ended = [o.step.variant for o in self.outcomes.values() if o.step.is_variant]
            step = self._schedule.take(time.monotonic(), running, ended)
            if step is None:
                return
            if evidence.recipe_digest(self.settings.root, step.package) == step.digest:
                self._start(step)
            else:
                self._put_off([step], "its recipe has changed since the plan; run again")
                self._say(sentence(self.outcomes[step.name]))

    def _start(self, step: Step) -> None:
        attempt = Attempt(self.settings.root, step, next(self._numbers))
        cores = self._schedule.cores(step)
        command = self.plan.backend.command(step, cores)
        self._say(f"$ {shlex.join(command.argv)}")
        self._record.started(attempt, cores)
        process = BuildProcess(self.plan.backend, attempt, command)
        task = asyncio.create_task(self._build(process))
        task.add_done_callback(lambda _: self._news.set())
        self._processes[process] = task

    async def _build(self, process: BuildProcess) -> None:
        """Run a process and conclude its attempt. An error fails it, and no other build."""
        attempt = process.attempt
        try:
            code = await process.run()
            await self._conclude(process, code)
        except Exception as problem:  # noqa: BLE001 - of any kind
            is_expected = isinstance(problem, BuildPytorchError)
            what = "" if is_expected else f"internal error: {type(problem).__name__}: "
            outcome = outcome_of(attempt, BuildState.FAILED, f"{what}{problem}")
            self._record.ended(attempt, outcome)
            self._report(outcome)

    async def _conclude(self, process: BuildProcess, code: int) -> None:
        """Decide what became of an attempt and record it, then repeat it or report it."""
        attempt = process.attempt
        outputs = await asyncio.to_thread(
            self.plan.backend.outputs, attempt.step, attempt.created, code
        )
        outcome = decide(attempt, code, outputs, was_ended=process.was_ended)
        self._record.ended(attempt, outcome)
        if not self._is_repeated(outcome):
            if outcome.cause == HASH_MISMATCH:
                self.fixable.append(self.settings.root / attempt.log)
            self._report(outcome)

    def _is_repeated(self, outcome: BuildOutcome) -> bool:
        """Put a step back whose failure may pass."""
        step, rule = outcome.step, outcome.rule
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
            process.stop()


def carried_out(plan: BuildPlan, screen: Screen) -> tuple[BuildRun, list[BuildOutcome]]:
    """Carry a plan out, as the only run here. Returns the run and what became of its builds.

    Raises BuildPytorchError if another run builds here, WriteError for the ledger.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # builds go on without their terminal
    settings = plan.backend.settings
    with only_run(settings.root), BuildDisplay(screen, plan.usual) as display:
        run = BuildRun(plan, settings, display)
        return run, run.run()


async def _wait_for(news: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(news.wait(), seconds)
    news.clear()
