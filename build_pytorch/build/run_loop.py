"""The run of a plan: one asyncio loop in which no program and no store access blocks another.

Each build is a task: it runs its process, then asks the store for the result, records the outcome
and reports it. The loop begins builds, shows progress and reacts to signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.build import schedule
from build_pytorch.build.backends.base_backend import BuildSettings, Step
from build_pytorch.build.build_display import BuildDisplay
from build_pytorch.build.build_outcome import BuildOutcome, BuildRecord, decide, sentence
from build_pytorch.build.build_plan import BuildPlan
from build_pytorch.build.build_process import Attempt, BuildProcess
from build_pytorch.build.log_rules import HASH_MISMATCH
from build_pytorch.build.push import Pushes
from build_pytorch.matrix.model import Variant
from build_pytorch.results import artefacts, evidence

_RETRY_SECONDS: Final = "BUILD_PYTORCH_RETRY_SECONDS"
"""Environment variable: seconds before the first retry of a download."""

_TICK: Final = 0.25
"""Seconds between two updates of the display; events end the wait earlier."""

_LOOK: Final = 10.0
"""Seconds between two looks for finished steps of a process that goes on."""

_MOST_DISCARDED: Final = 900.0
"""Combined build seconds of others that may be discarded to stop one build in a shared process."""


class BuildRun:
    """Carries out one plan."""

    def __init__(self, plan: BuildPlan, settings: BuildSettings, display: BuildDisplay) -> None:
        self.plan = plan
        self.settings = settings
        self.display = display
        self.outcomes: dict[str, BuildOutcome] = {}
        """By package name."""
        self.fixable: list[Path] = []
        """Logs of builds that failed for a wrong hash."""
        self.ended_by = 0
        """The signal that ended the run, or 0."""
        self.pushes = Pushes(settings.copy_to, settings.secret_key, display.say)
        self._record = BuildRecord(settings.root, plan.backend.name, display.say)
        self._schedule = schedule.Schedule(
            plan.builds,
            plan.jobs,
            plan.cores,
            float(os.environ.get(_RETRY_SECONDS, "30")),
            shared=plan.backend.shares_process,
        )
        self._processes: list[BuildProcess] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._signals_seen = 0
        self._news = asyncio.Event()

    def run(self) -> list[BuildOutcome]:
        """Build until nothing is left, and return what became of each build of the plan.

        Ctrl-C and SIGTERM end the builds politely, a second one kills them.
        """
        return asyncio.run(self._run())

    async def _run(self) -> list[BuildOutcome]:
        with self._signals():
            try:
                for step in self.plan.steps:
                    if step.action == "up to date":
                        link = artefacts.link(self.settings.root, step.variant)
                        self._push(step.variant, [artefacts.target(link)])
                while self._schedule.waiting or self._tasks or self.pushes.running:
                    self._begin()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), _TICK)
                    self._news.clear()
                    for task in [task for task in self._tasks if task.done()]:
                        self._tasks.remove(task)
                        task.result()
                    self.display.show(a for p in self._processes for a in p.attempts)
                    if self._signals_seen > 1:
                        break
            finally:
                for process in self._processes:
                    process.is_interrupted = True
                    process.kill()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self.pushes.end()
        return [self.outcomes[step.variant.package] for step in self.plan.builds]

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handle signals between two events, so that none separates a build from its record."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])

    def _on_signal(self, number: int) -> None:
        self._signals_seen += 1
        self.ended_by = self.ended_by or number
        self._news.set()
        if self._signals_seen == 1:
            self.display.say("stopping the builds; a second signal kills them")
            for step in self._schedule.drop():
                self._put_off(step, "the run was ended")
            self._stop_all()
            for task in self.pushes.running:
                task.cancel()

    # --- beginning ---

    def _begin(self) -> None:
        while not self._signals_seen:
            running = [a.step.variant for p in self._processes for a in p.attempts]
            ended = [outcome.variant for outcome in self.outcomes.values()]
            steps = self._schedule.take(time.monotonic(), running, ended, len(self._processes))
            if not steps:
                return
            if planned := [step for step in steps if self._is_as_planned(step)]:
                self._start(planned)

    def _is_as_planned(self, step: Step) -> bool:
        """Whether the recipe is still the planned one; if not, the step is not started."""
        if evidence.recipe_digest(self.settings.root, step.variant) == step.digest:
            return True
        self._put_off(step, "its recipe has changed since the plan; run again")
        self.display.say(sentence(self.outcomes[step.variant.package]))
        return False

    def _start(self, steps: Sequence[Step]) -> None:
        attempts = []
        for step in steps:
            self._number += 1
            attempts.append(Attempt(self.settings.root, step, self._number))
        cores = min(self._schedule.cores(step) for step in steps)
        command = self.plan.backend.command(steps, self.plan.jobs, cores)
        self.display.say(f"$ {shlex.join(command.argv)}")
        for attempt in attempts:
            self._record.started(attempt, self._schedule.cores(attempt.step))
        process = BuildProcess(self.plan.backend, attempts, command, self._on_rule)
        self._processes.append(process)
        self._watch(asyncio.create_task(self._build(process)))

    def _watch(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._news.set())

    # --- one process ---

    async def _build(self, process: BuildProcess) -> None:
        """Run a process, and conclude its attempts as they end."""
        try:
            early = asyncio.create_task(self._conclude_finished(process))
            try:
                code = await process.run()
            finally:
                await early
            for attempt in list(process.attempts):
                await self._conclude(process, attempt, code)
        finally:
            self._processes.remove(process)

    async def _conclude_finished(self, process: BuildProcess) -> None:
        """Conclude the finished steps of a shared process, which reports only at its end."""
        while len(process.attempts) > 1:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.news.wait(), _LOOK)
            process.news.clear()
            if process.has_ended:
                return
            begun = {id(a.step): a for a in process.attempts if a.progress.began and not a.rule}
            steps = [attempt.step for attempt in begun.values()]
            for step in await asyncio.to_thread(self.plan.backend.finished, steps):
                if not process.has_ended:
                    process.release(begun[id(step)])
                    await self._conclude(process, begun[id(step)], 0)

    def _on_rule(self, process: BuildProcess, attempt: Attempt) -> None:
        """Stop a build that matched a rule, unless too much work of others would be lost."""
        others = [a for a in process.attempts if a is not attempt and a.rule is None]
        if others and attempt.rule and process.elapsed * len(others) > _MOST_DISCARDED:
            name = attempt.step.variant.id
            self.display.say(
                f"{name}: {attempt.rule.meaning}; not stopped, because others share its process"
            )
        else:
            process.stop()

    async def _conclude(self, process: BuildProcess, attempt: Attempt, code: int) -> None:
        """Decide what became of an attempt, record it, then retry it or report it."""
        step = attempt.step
        outputs = await asyncio.to_thread(self.plan.backend.outputs, step, attempt.created, code)
        was_ended = process.is_interrupted or process.is_stopped
        outcome = decide(attempt, code, outputs, was_ended=was_ended)
        memory = 0 if attempt.is_shared else process.peak_memory
        self._record.ended(attempt, outcome, memory)
        if outcome.state == "interrupted" and not (
            process.is_interrupted or self.settings.fail_fast
        ):
            self._schedule.put_back(step)  # it was ended because of another build
            return
        if outcome.state == "failed" and not self._signals_seen:
            rule = outcome.rule
            how = self._schedule.retry(step, rule, time.monotonic())
            if rule and how:
                name = outcome.variant.id
                self.display.say(f"{name}: {rule.meaning}; {how} (log: {outcome.log})")
                return
        if outcome.rule and outcome.rule.id == HASH_MISMATCH:
            self.fixable.append(self.settings.root / attempt.log)
        self._settle(outcome)

    # --- ends ---

    def _settle(self, outcome: BuildOutcome) -> None:
        """Report an outcome, and drop the steps that would fail in the same way."""
        self.outcomes[outcome.variant.package] = outcome
        self.display.say(sentence(outcome))
        if self._signals_seen:
            return
        if outcome.state == "built":
            self._push(outcome.variant, outcome.outputs)
            return
        name, rule = outcome.variant.id, outcome.rule
        dropped: list[Step] = []
        why = ""
        if self.settings.fail_fast:
            why = f"--fail-fast: {name} {outcome.state}"
            dropped = self._schedule.drop()
            self._stop_all()
        elif rule and rule.shared and not self._has_built_sibling(outcome.variant):
            why = f"{name} {outcome.state} ({rule.id}), and its group shares that fault"
            dropped = self._schedule.drop(outcome.variant)
        for step in dropped:
            self._put_off(step, why)

    def _has_built_sibling(self, variant: Variant) -> bool:
        group = schedule.kind(variant)
        outcomes = self.outcomes.values()
        return any(o.state == "built" and schedule.kind(o.variant) == group for o in outcomes)

    def _put_off(self, step: Step, why: str) -> None:
        self.outcomes[step.variant.package] = BuildOutcome(
            variant=step.variant, state="not started", message=why
        )

    def _stop_all(self) -> None:
        for process in self._processes:
            process.is_interrupted = True
            process.stop()

    def _push(self, variant: Variant, outputs: Sequence[str]) -> None:
        self.pushes.begin(variant, outputs)
        for task in self.pushes.running:
            task.add_done_callback(lambda _: self._news.set())
