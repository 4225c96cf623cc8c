"""The builds of a plan: begun in order, watched, stopped, tried again, remembered."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base.errors import WriteError
from build_pytorch.build import backends, push
from build_pytorch.build.build_options import BuildOptions
from build_pytorch.build.jobs import Attempt, Job
from build_pytorch.build.log_rules import HASH_MISMATCH, KNOWN
from build_pytorch.build.outcome import BuildOutcome, State, sentence
from build_pytorch.build.plan import Plan
from build_pytorch.build.progress import Display
from build_pytorch.build.schedule import kind, next_of
from build_pytorch.build.step import Step
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.log_format import with_json_log
from build_pytorch.nix.store import valid_paths
from build_pytorch.results import artefacts, evidence
from build_pytorch.results.ledger import Ended, Ledger, Started, now

_LATER: Final = "BUILD_PYTORCH_RETRY_SECONDS"
"""Environment: seconds before the first retry of a download; each further wait is twice as long."""

_RETRIES: Final = {"fewer-cores": 1, "later": 3}

_KILLED: Final = (137, -9)
"""Exit codes of a program that the kernel killed, as shells and as Python count them."""

_LOOK: Final = 10.0
"""Seconds after which the store is asked again what is built."""

_YOUNG: Final = 900.0
"""Seconds of others' work that are given up to stop one build among many in one Nix."""


class Engine:
    """Carries out one plan."""

    def __init__(self, plan: Plan, options: BuildOptions, display: Display) -> None:
        self.plan = plan
        self.options = options
        self.root = options.root
        self.display = display
        self.ledger = Ledger(options.root)
        self.outcomes: dict[str, BuildOutcome] = {}
        self.fixable: list[Path] = []
        """Logs of builds that ended for a wrong hash."""
        self._pending = list(plan.builds)
        self._running: list[Job] = []
        self._cores: dict[str, int] = {}
        self._tries: dict[tuple[str, str], int] = {}
        self._not_before: dict[str, float] = {}
        self.pushes = push.Pushes(options.copy_to, options.secret_key, display.say)
        self._selector = selectors.DefaultSelector()
        self._number = 0
        self._next_look = 0.0
        self._interrupted = False
        self._signals_seen = 0
        self.ended_by = 0
        """The signal that ended the run, or 0."""

    def run(self) -> list[BuildOutcome]:
        """Build until nothing is left, and say what came of each variant of the plan.

        Ctrl-C and SIGTERM end it politely, a second one for good; `ended_by` is the first signal.
        """
        with self._signals():
            try:
                for step in self.plan.steps:
                    if step.action == "up to date":
                        link = artefacts.link(self.root, step.variant)
                        self.pushes.begin(step.variant, [artefacts.target(link)])
                while self._pending or self._running or self.pushes.running:
                    if self._signals_seen and not self._interrupted:
                        self._end_all()
                    if self._signals_seen > 1:
                        break
                    self._begin()
                    for key, _ in self._selector.select(0.2 if self._running else 0.05):
                        self._pump(key.fileobj)  # type: ignore[arg-type]
                    self._reap()
                    self.pushes.finish()
                    self.display.show(self._running)
            finally:
                for job in self._running:
                    job.interrupted = True
                    job.process.kill()
                self._reap()
                self.pushes.end()
        return [self.outcomes[step.variant.package] for step in self.plan.builds]

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals are counted, so that none comes between a build and what is remembered of it."""

        def count(number: int, _: object) -> None:
            self._signals_seen += 1
            self.ended_by = self.ended_by or number

        ends = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, count) for number in ends}
        try:
            yield
        finally:
            for number, what in before.items():
                signal.signal(number, what)

    # --- beginning ---

    def _begin(self) -> None:
        if self.plan.builders is not None:
            if self._pending and not self._running and self._is_time(self._pending):
                self._start([step for step in list(self._pending) if self._is_as_planned(step)])
            return
        while self._pending and len(self._running) < self.plan.jobs:
            step = self._next()
            if step is None:
                return
            if self._is_as_planned(step):
                self._start([step])

    def _is_as_planned(self, step: Step) -> bool:
        """Whether the recipe is still the one that was planned; else it is put off."""
        if evidence.recipe_digest(self.root, step.variant) == step.digest:
            return True
        self._pending.remove(step)
        self._put_off(step, "its recipe has changed since the plan; run again")
        self.display.say(sentence(self.outcomes[step.variant.package]))
        return False

    def _is_time(self, steps: Sequence[Step]) -> bool:
        times = [self._not_before.get(step.variant.package, 0.0) for step in steps]
        return time.monotonic() >= max(times)

    def _next(self) -> Step | None:
        steps = {s.variant.package: s for s in self._pending if self._is_time([s])}
        running = [a.step.variant for job in self._running for a in job.attempts]
        ended = [outcome.variant for outcome in self.outcomes.values()]
        variant = next_of([s.variant for s in steps.values()], running, ended)
        return steps[variant.package] if variant else None

    def _start(self, steps: Sequence[Step]) -> None:
        if not steps:
            return
        attempts = []
        for step in steps:
            self._pending.remove(step)
            self._number += 1
            attempts.append(Attempt(self.root, step, self._number))
        cores = min(self._cores_of(step) for step in steps)
        argv, env = backends.command(self.plan, self.root, steps, cores)
        self.display.say(f"$ {shlex.join(argv)}")
        is_nix = self.plan.backend == "nix"
        shown = with_json_log(argv) if is_nix else argv
        for attempt in attempts:
            step = attempt.step
            self._note(
                Started(
                    at=now(),
                    release=step.variant.release_name,
                    variant=step.variant.id,
                    digest=step.digest,
                    attempt=attempt.id,
                    backend=self.plan.backend,
                    derivation=step.derivation.drv_path if step.derivation else "",
                    log=str(attempt.log),
                    cores=self._cores_of(step),
                )
            )
        job = Job(self.root, attempts, shown, env, is_nix=is_nix)
        self._running.append(job)
        self._selector.register(job, selectors.EVENT_READ)

    def _cores_of(self, step: Step) -> int:
        return self._cores.get(step.variant.package, self.plan.cores)

    # --- while they run ---

    def _pump(self, job: Job) -> None:
        for attempt in job.pump():
            self._trip(job, attempt)
        if job.at_end:  # it may live on, and an output at its end can be read for ever
            self._selector.unregister(job)

    def _trip(self, job: Job, attempt: Attempt) -> None:
        rule = attempt.rule
        if rule is None:
            return
        others = [a for a in job.attempts if a is not attempt and a.rule is None]
        if others and job.elapsed * len(others) > _YOUNG:
            name = attempt.step.variant.id
            self.display.say(f"{name}: {rule.meaning}; it goes on because others share its Nix")
        else:
            job.stop()

    def _release_finished(self, job: Job) -> None:
        """Conclude what is built while others go on in a Nix that tells so only at its end."""
        if len(job.attempts) == 1 or not (job.has_news or time.monotonic() > self._next_look):
            return
        job.has_news = False
        self._next_look = time.monotonic() + _LOOK
        begun = [a for a in job.attempts if a.progress.began and a.rule is None]
        outputs = {a: a.step.derivation.output for a in begun if a.step.derivation}
        there = valid_paths(list(outputs.values()))
        for attempt in [a for a, output in outputs.items() if output in there]:
            self._conclude(job, attempt, 0)
            job.release(attempt)

    def _reap(self) -> None:
        for job in list(self._running):
            code = job.poll()
            if code is None:
                self._release_finished(job)
                continue
            if not job.at_end:
                self._selector.unregister(job)
            job.drain()
            job.close()
            self._running.remove(job)
            for attempt in job.attempts:
                self._conclude(job, attempt, code)

    def _conclude(self, job: Job, attempt: Attempt, code: int) -> None:
        """Decide what came of an attempt, remember it, and try again where that may help."""
        outputs = backends.outputs(self.plan, self.root, attempt, code)
        found = attempt.progress.cause()
        rule, line = found or (None, "")
        state: State
        if attempt.rule is not None:  # a result that came all the same is the wrong one
            state, rule = "stopped", attempt.rule
            line = attempt.progress.found[rule.id][1]
        elif outputs:
            state, rule, line = "built", None, ""
        elif job.interrupted or job.is_stopped:
            state, rule, line = "interrupted", None, ""
            if not (job.interrupted or self.options.fail_fast):
                self._pending.insert(0, attempt.step)  # ended for another's sake: it begins again
        else:
            state = "failed"
            if code in _KILLED and rule is None:
                rule, line = _OUT_OF_MEMORY, f"exit code {code}"
        outcome = BuildOutcome(
            variant=attempt.step.variant,
            state=state,
            seconds=job.seconds(attempt),
            rule=rule,
            log=str(attempt.log),
            outputs=outputs if state == "built" else (),
            tail=() if rule else tuple(attempt.progress.tail),
            where=attempt.progress.where,
            message=line or ("" if state == "built" else _ending(attempt.step, code)),
        )
        self._remember(job, attempt, outcome)
        if attempt.step in self._pending or self._again(attempt.step, outcome):
            return
        if rule and rule.id == HASH_MISMATCH:
            self.fixable.append(self.root / attempt.log)
        self._settle(outcome)

    def _remember(self, job: Job, attempt: Attempt, outcome: BuildOutcome) -> None:
        variant = outcome.variant
        if attempt.lost_log:
            self.display.say(f"{variant.id}: its log is not whole: {attempt.lost_log}")
        self._note(
            Ended(
                at=now(),
                release=variant.release_name,
                variant=variant.id,
                digest=attempt.step.digest,
                attempt=attempt.id,
                outcome=outcome.state if outcome.state != "not started" else "failed",
                seconds=round(outcome.seconds, 3),
                outputs=outcome.outputs,
                cause=outcome.rule.id if outcome.rule else "",
                message=outcome.message[:500],
                steps=attempt.progress.total,
                peak_memory=job.peak_memory if len(job.attempts) == 1 else 0,
                where=outcome.where,
            )
        )

    def _note(self, event: Started | Ended) -> None:
        """Remember something. A ledger that cannot be written ends no build: the store has it."""
        try:
            self.ledger.append(event)
        except WriteError as error:
            self.display.say(f"{event.variant}: not remembered: {error}")

    def _again(self, step: Step, outcome: BuildOutcome) -> bool:
        """Whether a failed build is tried once more, and how."""
        rule, package = outcome.rule, step.variant.package
        if outcome.state != "failed" or rule is None or not rule.retry or self._interrupted:
            return False
        tries = self._tries[package, rule.id] = self._tries.get((package, rule.id), 0) + 1
        if tries > _RETRIES[rule.retry]:
            return False
        if rule.retry == "fewer-cores":
            cores = self._cores_of(step)
            if cores <= 1:
                return False
            self._cores[package] = cores // 2
            how = f"once more with {cores // 2} cores instead of {cores}"
        else:
            seconds = float(os.environ.get(_LATER, "30")) * 2 ** (tries - 1)
            self._not_before[package] = time.monotonic() + seconds
            how = f"again in {seconds:.0f} s"
        self.display.say(f"{step.variant.id}: {rule.meaning}; {how} (log: {outcome.log})")
        self._pending.insert(0, step)
        return True

    # --- ends ---

    def _settle(self, outcome: BuildOutcome) -> None:
        """Tell what came of a variant, and take out what would fail the same way."""
        self.outcomes[outcome.variant.package] = outcome
        self.display.say(sentence(outcome))
        if outcome.state == "built" and not self._interrupted:
            self.pushes.begin(outcome.variant, outcome.outputs)
        if outcome.state == "built" or self._interrupted:
            return
        rule = outcome.rule
        why = ""
        if self.options.fail_fast:
            why = f"--fail-fast: {outcome.variant.id} {outcome.state}"
        elif rule and rule.shared and not self._has_built(outcome.variant):
            why = f"{outcome.variant.id} {outcome.state} ({rule.id}), and all have that in common"
        for step in list(self._pending):
            is_sibling = kind(step.variant) == kind(outcome.variant)
            if why and (self.options.fail_fast or is_sibling):
                self._pending.remove(step)
                self._put_off(step, why)
        if self.options.fail_fast:
            for job in self._running:
                job.interrupted = True
                job.stop()

    def _has_built(self, variant: Variant) -> bool:
        return any(
            o.state == "built" and kind(o.variant) == kind(variant) for o in self.outcomes.values()
        )

    def _put_off(self, step: Step, why: str) -> None:
        self.outcomes[step.variant.package] = BuildOutcome(
            variant=step.variant, state="not started", message=why
        )

    def _end_all(self) -> None:
        """End politely what runs, and begin nothing more."""
        self._interrupted = True
        self.display.say("stopping the builds; once more ends them at once")
        for step in self._pending:
            self._put_off(step, "the run was ended")
        self._pending = []
        self.pushes.end()
        for job in self._running:
            job.interrupted = True
            job.stop()


def _ending(step: Step, code: int) -> str:
    """How a program ended that left no result."""
    if code:
        return f"exit code {code}"
    name = f"result-{step.variant.package}"
    return f"no error, and no new {name}; take that link away and run again"


_OUT_OF_MEMORY: Final = next(rule for rule in KNOWN if rule.id == "out-of-memory")
