"""Publishing packages with `flox publish`: preconditions, the decision for each, and the run."""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base import files, git, paths, process
from build_pytorch.base.console import ProgressLine, some
from build_pytorch.base.errors import ToolError
from build_pytorch.base.process_stream import run_tail
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.source_tables import CUDA_PACKAGES_VARIABLE
from build_pytorch.matrix.tables import environment_of
from build_pytorch.nix import derivations, store
from build_pytorch.results import evidence, ledger
from build_pytorch.results.package_state import BuiltState, PackageState

_TAIL: Final = 10  #: lines of the output that are shown of a failure
_SHORT: Final = len("sha256:") + 12  #: characters of a digest that are shown


class Publication(Struct, frozen=True, kw_only=True):
    """What becomes of one package, and why."""

    variant: str  #: id of the package
    package: str
    action: Literal["publish", "published", "already", "refused", "failed"]
    reason: str
    output: str = ""
    digest: str = ""  #: of the recipe, to which the evidence belongs
    evidence: tuple[str, ...] = ()  #: reports of tests that passed; the test's name without one


class PackageFacts(Struct, frozen=True, kw_only=True):
    """What a catalogue gets to know of a package. None is unknown; `problem` says why."""

    system: str | None = None
    broken: bool | None = None
    closure: int | None = None
    """Size in bytes of the result with everything that it needs at run time."""
    problem: str = ""

    @property
    def text(self) -> str:
        """The facts in one line."""
        if self.broken:
            broken = "broken: Flox does not install it unless a manifest allows that"
        else:
            broken = "not broken" if self.broken is False else "broken or not: unknown"
        size = "of unknown size" if self.closure is None else f"{self.closure / 2**30:.2f} GiB"
        problem = f" ({self.problem})" if self.problem else ""
        return f"{self.system or 'unknown system'}, closure {size}, {broken}{problem}"


def this_system() -> str:
    """Return the platform of this machine, which Flox writes into what it publishes."""
    return f"{platform.machine()}-{platform.system().lower()}"


def package_facts(root: Path, states: Sequence[PackageState]) -> dict[str, PackageFacts]:
    """Return what a catalogue would get to know, by id; all from one evaluation."""
    evaluated, why = derivations.DerivationSet({}, {}), ""
    try:
        evaluated = derivations.evaluate(root, [state.package for state in states])
    except ToolError as error:
        why = str(error).partition("\n")[0]
    facts = {}
    for state in states:
        package = state.package
        drv = evaluated.derivations.get(package.attribute)
        closure = None
        with contextlib.suppress(ToolError, ValueError):
            closure = sum(store.sizes(store.requisites(state.output)))
        facts[package.id] = PackageFacts(
            system=drv.system if drv else None,
            broken=drv.broken if drv else None,
            closure=closure,
            problem="" if drv else evaluated.failures.get(package.attribute, why),
        )
    return facts


def unmet_preconditions(root: Path, packages: Sequence[Package]) -> Iterator[str]:
    """Yield why `flox publish` would refuse, each with what to do. Raises ToolError without Git."""
    if not process.which("flox"):
        yield "flox is not installed; see https://flox.dev"
    elif process.capture(["flox", "auth", "status"], check=False).code:
        yield "not logged in at FloxHub: flox auth login"
    if refusal := git.refusal(root):
        yield f"{refusal}; Flox publishes only what Git has"
        return
    wanted = evidence.recipe_files(root, packages)
    # Flox requires it beside the clean tree (its pull request 4102).
    locks = dict.fromkeys(f"{PurePath(p.folder).parent}/env/manifest.lock" for p in packages)
    tracked = set(git.run(root, "ls-files", "--", *wanted, *locks).stdout.splitlines())
    if missing := [path for path in wanted if path not in tracked]:
        yield f"not tracked by Git: {git.add_command(missing)}"
    for lock in locks:
        if lock not in tracked:
            folder = environment_of(f"{PurePath(lock).parent.parent}/pkgs")
            activate = "flox activate" if folder == "." else f"flox activate -d {folder}"
            how = "" if (root / lock).exists() else f"`{activate}` writes it; "
            yield f"{lock} is not tracked by Git, and Flox requires it; {how}`git add {lock}`"
    if changed := git.uncommitted(root):
        yield f"uncommitted changes: {some(changed)}; commit or stash them"
    if not git.run(root, "remote").stdout.strip():
        yield "the checkout has no remote: `git remote add origin URL`, `git push -u origin HEAD`"
    elif not git.run(root, "branch", "-r", "--contains", "HEAD").stdout.strip():
        yield "this commit is on no remote branch: `git push`"


def decide(
    state: PackageState,
    organization: str,
    *,
    without_evidence: bool,
    system: str = "",
    torch: Publication | None = None,
) -> Publication:
    """Decide what becomes of a package. `without_evidence` allows results without a passed test.

    `torch` is what becomes of the variant that a companion is for: it comes first, and the closure
    of the companion holds it. Flox publishes for the platform of this machine, whatever the package
    is for; `system` is another platform that it is told.
    """
    package, missing = state.package, state.missing_evidence
    tests = {"smoke test": state.smoke_test, "inspection": state.inspection}
    passed = {name: t for name, t in tests.items() if t and t.outcome == "passed"}
    action: Literal["publish", "already", "refused"] = "refused"
    if why := _unpublishable(state, system):
        reason = why
    elif organization in state.organizations:
        action, reason = "already", f"published to {organization or 'yourself'}"
    elif state.failed_test:
        reason = f"{state.failed_test}; fix that, `invoke build {package.id}` and test again"
    elif missing and not without_evidence:
        reason = f"{missing}; `invoke smoke {package.id}` on its hardware or `invoke inspect`"
    elif torch and (why := _torch_obstacle(state, torch)):
        reason = why
    else:
        action = "publish"
        how = f"without evidence: {missing}" if missing else f"passed {' and '.join(passed)}"
        reason = f"recipe {state.digest[:_SHORT]}, {how}"
    return Publication(
        variant=package.id,
        package=package.package,
        action=action,
        reason=reason,
        output=state.output,
        digest=state.digest,
        evidence=tuple(test.report or test.by for test in passed.values()),
    )


def _unpublishable(state: PackageState, system: str) -> str:
    """Return why Flox here could not publish a result, whatever the evidence; empty if it can.

    `system` is the platform other than that of this machine that Flox is told.
    """
    package = state.package
    if state.built is BuiltState.UNKNOWN:
        return f"no record of the recipe it was built from; `invoke build {package.id}`"
    if state.built is not BuiltState.YES:
        return f"not built for this recipe; `invoke build {package.id}`"
    if why := _not_repeatable(state):
        return why
    wanted = package.platform
    if wanted not in {this_system(), system}:
        here = f"Flox here publishes for {this_system()}"
        return f"is for {wanted}, and {here}; publish it there, or with --system {wanted}"
    return ""


def _torch_obstacle(state: PackageState, torch: Publication) -> str:
    """Return why a companion cannot be published after its PyTorch; empty if it can."""
    if torch.action in {"refused", "failed"}:
        return f"its PyTorch {torch.variant} comes first: {torch.reason}"
    try:
        is_held = torch.output in store.requisites(state.output)
    except ToolError as error:
        return f"its closure is unknown: {str(error).partition(chr(10))[0]}"
    fix = f"`invoke build {state.package.id}`"
    return "" if is_held else f"its closure lacks {torch.output} of {torch.variant}; {fix}"


def _not_repeatable(state: PackageState) -> str:
    """Return why Flox would publish another build than this one; empty if it would not."""
    package = state.package
    if local := state.local_packages or derivations.local_checkout(package.variant):
        fix = f"unset {CUDA_PACKAGES_VARIABLE} and `invoke build {package.id}`"
        return f"its CUDA packages come from {local}, which nobody else has; {fix}"
    return ""


def carry_out(
    decided: Publication,
    state: PackageState,
    root: Path,
    organization: str,
    say: Callable[[str], None],
) -> Publication:
    """Publish a package if that was decided, and record it. Raises WriteError."""
    if decided.action != "publish":
        return decided
    id_, package = decided.variant, state.package
    system = package.platform
    told = [] if system == this_system() else ["--system", system]
    folder = environment_of(package.folder)
    place = [] if folder == "." else ["--dir", folder]
    owner = ["-o", organization] if organization else []
    argv = ["flox", "publish", *place, *owner, *told, package.package]
    say(f"$ {' '.join(argv)}")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    log = Path(paths.STATE, ledger.LOGS, package.attribute, f"{stamp}-publish.log")
    code, tail = asyncio.run(_logged(argv, root, log))
    if code:
        for line in tail:
            say(f"    {line}")
        say(f"{id_}: flox publish failed with exit code {code}; whole log: {log}")
        return replace(decided, action="failed", reason=f"exit code {code}; {log}")
    event = ledger.Published(
        at=ledger.now(),
        release=package.release_name,
        variant=package.short_id,
        digest=state.digest,
        organization=organization,
        output=state.output,
        without_evidence=bool(state.missing_evidence),
    )
    ledger.Ledger(root).append(event)
    say(f"{id_}: published")
    return replace(decided, action="published")


async def _logged(argv: Sequence[str], root: Path, log: Path) -> tuple[int, list[str]]:
    """Run a program with its output in a log below `root`. Return its exit code and last lines."""
    progress = ProgressLine(f"publishing {argv[-1]}", 0)
    try:
        with files.write_errors(root / log), files.create_below(root, log) as file:
            running = asyncio.create_task(run_tail(argv, _TAIL, cwd=root, log=file))
            while not running.done():
                progress.at()
                await asyncio.wait({running}, timeout=0.5)
            return running.result()
    finally:
        progress.end()
