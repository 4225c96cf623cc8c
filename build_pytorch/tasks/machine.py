"""`invoke recommend`: which PyTorch for a machine. `invoke doctor`: is the installed one right."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.base.console import WIDTH, Screen, grouped, print_json, shortened
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.hardware.choose import Choice
    from build_pytorch.hardware.saved_machines import Machine

_INDENT = 7
_LONGEST = 400  #: characters of a text from outside
_OF_CPU = re.compile(r"\((R|TM)\)|\b(AMD|Intel|CPU|Processor|\d+-Core) ?|@.*", re.IGNORECASE)
"""What is left out of the name of a CPU."""


@command
def recommend(
    c: Context,
    machine: str = "",
    gpu: str = "",
    cpu: str = "",
    driver: str = "",
    describe: bool = False,
    flox: bool = False,
    verbose: bool = False,
    json: bool = False,
) -> int:
    """Say which PyTorch to install on a machine, or to build."""
    from build_pytorch.hardware.choose import Person, choose, judge_all
    from build_pytorch.hardware.detect import described_machine, person_here
    from build_pytorch.results.package_state import package_states

    matrix = load(is_for_any=True)
    here = described_machine(matrix, file=machine, gpu=gpu, cpu=cpu, driver=driver)
    if describe:
        print_json(here, sys.stdout)
        return EXIT_OK
    person = Person() if machine or gpu or cpu else person_here()
    variants = [it for it in matrix.variants if it.platform == here.platform]
    states = package_states(matrix.root, variants)
    events = {name: it.publication for name, it in states.items()}
    published = {name: it.organization or "ORG" for name, it in events.items() if it}
    choice = choose(matrix, here, person, judge_all(matrix, here, person, published))
    state = states.get(choice.build.variant) if choice.build.has_reason else None
    is_served = bool(choice.now) and bool(choice.now[0].gpus or not here.gpus)
    code, screen = EXIT_OK if is_served else EXIT_FINDINGS, Screen(sys.stdout)
    if json:
        print_json({"machine": here, "choice": choice, "exit_code": code}, sys.stdout)
    elif flox:
        return _print_manifest(screen, choice)
    else:
        print_machine(screen, here)
        print_choice(screen, choice, verbose=verbose, doubts=state.doubts if state else "")
    return code


def print_machine(screen: Screen, machine: Machine) -> None:
    """Print GPUs, driver, CPU and platform in one line, and what could not be detected."""
    names = [it.name.removeprefix("NVIDIA ").removeprefix("GeForce ") for it in machine.gpus]
    kinds = grouped(zip(names, machine.gpus, strict=True))
    found = [f"{len(it)} x {name} ({it[0].capability})" for name, it in kinds.items()]
    found = [it.removeprefix("1 x ") for it in found] + list(machine.other_gpus)
    driver = f"driver {machine.driver}" if machine.driver else ""
    driver = driver or (f"driver for CUDA {machine.cuda}" if machine.cuda else "")
    first = ", ".join(filter(None, (*(found or ["no GPU"]), driver)))
    cpu = _OF_CPU.sub("", machine.cpu.model or "unknown CPU").strip()
    parts = (shortened(part, 60) for part in (first, cpu, machine.platform.removesuffix("-linux")))
    screen.fold("", " · ".join(parts), "bold", indent=_INDENT)
    for note in machine.notes:
        screen.fold("note   ", note, "yellow", indent=_INDENT)


def print_choice(screen: Screen, choice: Choice, *, verbose: bool, doubts: str = "") -> None:
    """Print what to install now, and whether to build; `verbose`: also the rest.

    `doubts` are what nobody has confirmed of the build.
    """
    heads = ("Now    ", *["  or   "] * len(choice.now))
    for head, offer in zip(heads, choice.now, strict=False):
        _print_command(screen, head, offer.command, offer.says)
    if choice.unused:
        screen.fold("GPU    ", choice.unused, "yellow", indent=_INDENT)
        if choice.update:
            screen.fold("Driver ", choice.update, indent=_INDENT)
    build = choice.build
    if build.has_reason and not build.lines:
        _print_command(screen, "Build  ", f"invoke build {build.variant}", build.says)
    else:
        name = f"{build.variant}, which matrix.toml lacks: " if build.has_reason else ""
        screen.fold("Build  ", f"{name}{build.says}", indent=_INDENT)
    if verbose:
        _print_rest(screen, choice, doubts)
    else:
        screen.line("`-v` says what else runs, and why the rest does not")


def _print_command(screen: Screen, head: str, command: str, says: str) -> None:
    """Print a command to copy in one line, and why beside it or below."""
    is_short = len(head) + len(command) + len(says) + 3 <= WIDTH
    beside = f"   {says}" if is_short else ""
    screen.line(f"{screen.paint(head, 'green')}{command}{beside}")
    if not is_short:
        screen.fold(" " * _INDENT, says, indent=_INDENT)


def _print_rest(screen: Screen, choice: Choice, doubts: str) -> None:
    """Print what is unconfirmed, what else runs, and what does not and why."""
    checks = [(offer.command, offer.build.unconfirmed) for offer in choice.now]
    checks.append((f"invoke build {choice.build.variant}", doubts.removeprefix("not confirmed: ")))
    for name, text in checks:
        if text:
            _print_command(screen, "check  ", name, f"not confirmed: {text}")
    if choice.update and not choice.unused:
        screen.fold("Driver ", choice.update, indent=_INDENT)
    if choice.build.lines:
        screen.line(f"To have {choice.build.variant}, append to matrix.toml, then `invoke all`:")
        screen.line(choice.build.lines.rstrip())
    if choice.others:
        screen.line("Runs as well:")
    for build in choice.others:
        command, version = build.install(), build.version or "version not known"
        screen.line(f"    {command}" + f"   {version}" * (version not in command))
    screen.line("Why not:")
    for why, commands in choice.rejected.items():
        screen.fold("  ", f"{why}:", indent=4)
        for command in commands:
            screen.line(f"    {command}")
    for release, why in choice.build.rejected.items():
        screen.fold(f"  {release}: ", why)


def _print_manifest(screen: Screen, choice: Choice) -> int:
    """Print the block of a Flox manifest that installs the first build of Flox."""
    import json

    builds = [it.build for it in choice.now if it.build.installer == "flox"]
    if not builds:
        screen.line("Flox has no build that runs here; `invoke recommend` says what does")
        return EXIT_FINDINGS
    screen.line("# add to .flox/env/manifest.toml with `flox edit`\n[install]")
    for package in builds[0].install().removeprefix("flox install ").split():
        path, _, version = package.partition("@")
        name = "python3" if path == "python3" else "torch"
        values = {"pkg-path": path, "version": version or builds[0].version}
        for key, value in values.items():
            if value:
                screen.line(f"{name}.{key} = {json.dumps(value)}")
        screen.line(f'{name}.systems = ["{builds[0].platform}"]\n{name}.priority = 4')
    screen.line("# then: flox activate -- python3 -c 'import torch; print(torch.__version__)'")
    return EXIT_OK


@command(texts={"python": "the Python (default: of the active environment, else python3)"})
def doctor(c: Context, python: str = "", machine: str = "", json: bool = False) -> int:
    """Judge the torch of a Python, and how to repair it."""
    from build_pytorch.hardware.choose import Person, choose
    from build_pytorch.hardware.detect import described_machine, person_here
    from build_pytorch.hardware.doctor import ask, diagnose
    from build_pytorch.matrix.versions import minor_version

    matrix, (path, torch) = load(is_for_any=True), ask(python)
    here = described_machine(matrix, file=machine)
    person = Person(tools=person_here().tools, python=minor_version(torch.python))
    findings = diagnose(path, torch, here, choose(matrix, here, person))
    verdict = findings[0].verdict if findings else "right"
    code = EXIT_FINDINGS if verdict == "wrong" else EXIT_OK
    if json:
        facts = {"verdict": verdict, "findings": findings, "path": path, "torch": torch}
        print_json({**facts, "exit_code": code}, sys.stdout)
        return code
    screen = Screen(sys.stdout)
    print_machine(screen, here)
    cuda = f"CUDA {torch.cuda}" if torch.cuda else "without CUDA"
    what = f"torch {torch.version}, {cuda}: {torch.folders[0]}" if torch.version else "no torch"
    screen.fold("Python ", f"{path}, {torch.python}; {shortened(what, _LONGEST)}", indent=_INDENT)
    colour = {"right": "green", "wrong": "red"}.get(verdict, "yellow")
    screen.line(screen.paint(f"Verdict: {verdict}", colour))
    for finding in findings:
        screen.fold("- ", shortened(finding.text, _LONGEST), indent=2)
        screen.line(f"  {finding.command}")
    return code
