"""The run of a plan: it starts builds, records what becomes of them, and reacts to signals.

Each build runs in a thread, which also looks its result up in the store. All else is done here, one
after the other: no lock is needed, and no signal separates a build from its record.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import BuildPytorchError, WriteError
from build_pytorch.build.backends import Step
from build_pytorch.build.build_attempt import BuildAttempt, BuildOutcome, sentence
from build_pytorch.build.build_plan import BuildPlan
from build_pytorch.build.build_report import BuildDisplay
from build_pytorch.build.log_rules import OUT_OF_MEMORY
from build_pytorch.build.usual_times import group_of
from build_pytorch.results import artefacts, ledger
from build_pytorch.results.ledger import Event
from build_pytorch.results.package_state import Mark

_TICK: Final = 0.25  #: seconds between two updates of the display; the end of a build is earlier


class BuildRun:
    """Carries out one plan."""

    def __init__(self, plan: BuildPlan, display: BuildDisplay) -> None:
        self.plan = plan
        self.outcomes: dict[str, BuildOutcome] = {}  #: by name of the step
        self.ended_by = 0  #: the signal that ended the run, or 0
        self._root = plan.backend.settings.root
        self._display = display
        self._say = display.say
        self._waiting = plan.builds
        self._cores = plan.cores
        self._had_no_memory: set[str] = set()  #: names of steps that were tried again
        self._running: dict[Future[BuildOutcome], BuildAttempt] = {}
        self._signals = 0  #: after the first no build begins, the second kills those that run

    def run(self) -> list[BuildOutcome]:
        """Build until nothing is left, and return what became of each build of the plan.

        Ctrl-C and SIGTERM end the builds politely, a second one kills them.
        """
        numbers = (signal.SIGINT, signal.SIGTERM)
        handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        with ThreadPoolExecutor(self.plan.jobs) as pool:
            try:
                while self._waiting or self._running:
                    self._react()
                    self._begin(pool)
                    ended, _ = wait(self._running, _TICK, FIRST_COMPLETED)
                    for future in ended:
                        self._finish(self._running.pop(future), future.result())
                    self._display.show(self._running.values())
            finally:
                for attempt in self._running.values():
                    attempt.is_killed = True
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        return [self.outcomes[step.name] for step in self.plan.builds]

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        self.ended_by = self.ended_by or number

    def _react(self) -> None:
        """End what runs and give up what waits, if a signal came."""
        if not self._signals:
            return
        if not all(attempt.is_stopped for attempt in self._running.values()):
            self._say("stopping the builds; a second signal kills them")
        self._give_up(self._waiting, "the run was ended")
        for attempt in self._running.values():
            attempt.is_stopped, attempt.is_killed = True, self._signals > 1

    def _begin(self, pool: ThreadPoolExecutor) -> None:
        """Start as many builds as may run at once; a companion waits for its variant."""
        while len(self._running) < self.plan.jobs:
            unbuilt = [*self._waiting, *(attempt.step for attempt in self._running.values())]
            variants = {step.name for step in unbuilt if step.is_variant}
            ready = (
                step
                for step in self._waiting
                if step.is_variant or step.package.variant.attribute not in variants
            )
            if (step := next(ready, None)) is None:
                return
            self._waiting.remove(step)
            if artefacts.recipe_digest(self._root, step.package) != step.digest:
                self._give_up([step], "its recipe has changed since the plan; run again")
                self._say(sentence(self.outcomes[step.name]))
                continue
            command = self.plan.backend.command(step, self._cores)
            attempt = BuildAttempt(self._root, step, command, self._cores)
            self._say(f"$ {shlex.join(command.argv)}")
            self._record(attempt.event("started"))
            self._running[pool.submit(self._build, attempt)] = attempt

    def _build(self, attempt: BuildAttempt) -> BuildOutcome:
        """Return what became of an attempt. An error fails no other build."""
        try:
            code = attempt.run()
            found = self.plan.backend.outputs
            return attempt.decide(code, () if code else found(attempt.step, attempt.created))
        except Exception as problem:  # noqa: BLE001 - of any kind
            is_expected = isinstance(problem, BuildPytorchError)
            what = "" if is_expected else f"internal error: {type(problem).__name__}: "
            return attempt.outcome(Mark.FAILED, f"{what}{problem}")

    def _finish(self, attempt: BuildAttempt, outcome: BuildOutcome) -> None:
        """Record an attempt, and repeat it or report it."""
        step = attempt.step
        if attempt.lost_log:
            self._say(f"{step.package.id}: its log is incomplete: {attempt.lost_log}")
        self._record(attempt.ended_event(outcome))
        if self._is_tried_again(outcome, attempt.cores):
            return
        self.outcomes[step.name] = outcome
        self._say(sentence(outcome))
        if step.is_variant and outcome.state is not Mark.BUILT:
            self._drop_hopeless(outcome)

    def _record(self, event: Event) -> None:
        """Write a line into the ledger. One that cannot be written ends no build."""
        try:
            ledger.append(self._root, event)
        except WriteError as error:
            self._say(f"{event.variant}: not recorded: {error}")

    def _is_tried_again(self, outcome: BuildOutcome, cores: int) -> bool:
        """Put back a step that had not enough memory: once, with half the compile jobs."""
        step = outcome.step
        is_first = step.name not in self._had_no_memory and not self._signals
        if outcome.cause != OUT_OF_MEMORY or not is_first or cores == 1:
            return False
        self._had_no_memory.add(step.name)
        self._cores = min(self._cores, cores // 2)  # also for the others, which take as much
        self._waiting.insert(0, step)
        how = f"once more with {self._cores} cores instead of {cores} (log: {outcome.log})"
        self._say(f"{step.package.id}: not enough memory ({outcome.message}); {how}")
        return True

    def _drop_hopeless(self, outcome: BuildOutcome) -> None:
        """Give up the steps that need a variant that was not built, or that share its fault."""
        step, rule = outcome.step, outcome.rule
        what = f"{step.package.id} {outcome.state}"
        group = group_of(step.package.variant)
        built = [o.step for o in self.outcomes.values() if o.state is Mark.BUILT]
        proved = any(s.is_variant and group_of(s.package.variant) == group for s in built)
        if rule and rule.shared and not proved:
            alike = [s for s in self._waiting if group_of(s.package.variant) == group]
            self._give_up(alike, f"{what} ({rule.id}), and its group shares that fault")
        needing = [s for s in self._waiting if s.package.variant is step.package]
        self._give_up(needing, f"{what}, and this needs it")

    def _give_up(self, steps: Sequence[Step], why: str) -> None:
        """Drop steps that wait, and the companions of variants among them."""
        variants = [step.package for step in steps if step.is_variant]
        for step in [*steps, *(s for s in self._waiting if s.package.variant in variants)]:
            not_started = BuildOutcome(step=step, state=Mark.NOT_STARTED, message=why)
            self.outcomes.setdefault(step.name, not_started)
        self._waiting = [step for step in self._waiting if step.name not in self.outcomes]


def carry_out(plan: BuildPlan, screen: Screen) -> BuildRun:
    """Carry a plan out. Raises WriteError where another run builds in the checkout."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # builds go on without their terminal
    root = plan.backend.settings.root
    build_run = BuildRun(plan, BuildDisplay(screen, plan.usual))
    with ledger.only_run(root):
        build_run.run()
    return build_run
