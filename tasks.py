"""The menu of `invoke`. Bodies only hand over; the work is done in build_pytorch/."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task, task

from build_pytorch.cli.invoke_words import WordsTask

_ROOT = "another checkout to work on, with this matrix.toml (default: this one)"
_JSON = "print the result as JSON"


def _root(value: str | None) -> Path:
    """The folder that --root names; an empty one is a variable that was not set."""
    from build_pytorch.base import paths
    from build_pytorch.cli import cli_values

    return cli_values.path("--root", value) or paths.PROJECT


def _hand_over(run: Callable[[], int]) -> None:
    """Turn an exit code or an expected error into invoke's Exit: one line, no traceback."""
    from build_pytorch.cli.entry import guarded

    if code := guarded(run):
        raise Exit(code=code)


def _phases(
    name: str, numbers: set[int], text: str, *, verify: bool = False
) -> Task[Callable[..., None]]:
    """Make a task that runs phases; they all take the same options."""

    def body(
        _: Context,
        root: str | None = None,
        dry_run: bool = False,
        check: bool = False,
        diff: bool = False,
        force: bool = False,
        json: bool = False,
    ) -> None:
        def run() -> int:
            from build_pytorch.cli import phases
            from build_pytorch.matrix.model import Phase

            options = phases.PhaseOptions(
                root=_root(root),
                dry_run=dry_run,
                check=check,
                diff=diff,
                force=force,
                json=json,
            )
            chosen = [phase for phase in Phase if phase.number in numbers]
            return phases.run(chosen, options, verify=verify)

        _hand_over(run)

    body.__name__ = name
    body.__doc__ = text
    return Task(
        body,
        auto_shortflags=False,
        help={
            "root": _ROOT,
            "dry-run": "show the plan and write nothing",
            "check": "write nothing and exit 1 when something would change (CI, pre-commit)",
            "diff": "show what changes as unified diffs",
            "force": "overwrite or delete what was edited by hand or has uncommitted changes",
            "json": _JSON,
        },
    )


phase1 = _phases(
    "phase1", {1}, "Clean up: delete the files that matrix.toml's clean-up list names."
)
phase2 = _phases("phase2", {2}, "Generate the GPU recipes for x86, by architecture, SM120 first.")
phase3 = _phases("phase3", {3}, "Generate the GPU recipes for ARM.")
phase4 = _phases("phase4", {4}, "Generate the CPU-only recipes.")
phase5 = _phases("phase5", {5}, "Bring docs, counts and the JSON schema up to date.")
everything = _phases("all", {1, 2, 3, 4, 5}, "Run the five phases, then verify.", verify=True)


@task(
    klass=WordsTask,
    auto_shortflags=False,
    iterable=["only"],
    help={
        "variants": "which variants: ids, package names, patterns such as 'sm120-*' (default: all)",
        "root": _ROOT,
        "only": "run this check only; may be given again",
        "strict": "fail on warnings and on checks that were skipped, too (CI)",
        "json": _JSON,
        "sarif": "write the findings to this file as SARIF 2.1.0",
        "junit": "write the checks to this file as JUnit XML",
        "github": "print GitHub annotations",
        "pinned": "evaluate against the real pinned nixpkgs (network or a store that has it)",
    },
)
def verify(
    _: Context,
    variants: str = "",
    root: str | None = None,
    only: list[str] | None = None,
    strict: bool = False,
    json: bool = False,
    sarif: str | None = None,
    junit: str | None = None,
    github: bool = False,
    pinned: bool = False,
) -> None:
    """Run every check on recipes and docs; exit 1 when one finds an error."""

    def run() -> int:
        from build_pytorch.cli import verify

        return verify.run(
            variants=variants.split(),
            root=_root(root),
            only=only or [],
            strict=strict,
            json=json,
            sarif=Path(sarif) if sarif else None,
            junit=Path(junit) if junit else None,
            github=github,
            pinned=pinned,
        )

    _hand_over(run)


@task(
    auto_shortflags=False,
    iterable=["only"],
    help={
        "only": "this source only (torch, nixpkgs, magma_patch); may be given again",
        "check": "write nothing and exit 1 where a hash differs",
        "accept": "take the new hash of a rev that has another one than it had",
        "json": _JSON,
        "timeout": "minutes that one download may take",
        "from-log": "take the hashes from the log of a failed build (- reads standard input)",
    },
)
def prefetch(
    _: Context,
    only: list[str] | None = None,
    check: bool = False,
    accept: bool = False,
    json: bool = False,
    timeout: str = "60",
    from_log: str = "",
) -> None:
    """Take the hashes of all sources, write matrix.toml and generate again."""

    def run() -> int:
        from build_pytorch.cli import cli_values, prefetch

        options = prefetch.PrefetchOptions(
            only=tuple(only or ()),
            check=check,
            accept=accept,
            json=json,
            timeout=cli_values.integer("--timeout", timeout),
            from_log=Path(from_log) if from_log else None,
        )
        return prefetch.run(options)

    _hand_over(run)


@task(
    auto_shortflags=False,
    help={
        "torch": "the version of PyTorch to move to, such as 2.11.0",
        "nixpkgs": "the nixpkgs revision to move to, 40 hex digits",
        "cuda": "the CUDA version to move to, such as 13.1",
        "release": "which release, where matrix.toml has several",
        "pre": "take a pre-release as well",
        "dry-run": "do everything but write",
        "timeout": "minutes that one download may take",
    },
)
def bump(
    _: Context,
    torch: str = "",
    nixpkgs: str = "",
    cuda: str = "",
    release: str = "",
    pre: bool = False,
    dry_run: bool = False,
    timeout: str = "60",
) -> None:
    """Move a release to another PyTorch, nixpkgs or CUDA: all of it, or nothing."""

    def run() -> int:
        from build_pytorch.cli import cli_values
        from build_pytorch.sources import release_bump

        options = release_bump.BumpOptions(
            torch=torch,
            nixpkgs=nixpkgs,
            cuda=cuda,
            release=release,
            pre=pre,
            dry_run=dry_run,
            timeout=cli_values.integer("--timeout", timeout),
        )
        return release_bump.run(options)

    _hand_over(run)


@task(auto_shortflags=False, help={"json": _JSON})
def outdated(_: Context, json: bool = False) -> None:
    """List what is newer than matrix.toml: PyTorch and nixpkgs."""

    def run() -> int:
        from build_pytorch.sources import release_bump

        return release_bump.outdated(as_json=json)

    _hand_over(run)


@task(
    klass=WordsTask,
    auto_shortflags=False,
    iterable=["gpu", "isa"],
    help={
        "variants": "which variants: ids, package names, patterns such as 'sm120-*'",
        "gpu": "those of this GPU architecture (sm90, or cpu for CPU-only); may be given again",
        "isa": "those of this CPU ISA (avx2); may be given again",
        "all": "every variant",
        "backend": "flox or nix (default: flox where it is installed)",
        "jobs": "how many variants to build at once",
        "cores": "compile jobs of each build (default: what the memory allows)",
        "builders": "hand the work to the machines in this file (Nix's format), or `matrix`",
        "copy-to": "push results to this binary cache: file:///srv/cache, s3://..., ssh://...",
        "store": "the same as --copy-to",
        "secret-key": "sign what is pushed with the key in this file",
        "dry-run": "show the plan and build nothing",
        "keep-going": "go on after a failure (the default)",
        "fail-fast": "end everything at the first failure",
        "fix-hashes": "take a source's hash from the log of the failed build, and go on",
        "force": "build what verification, the disk or missing hardware speaks against",
        "root": _ROOT,
        "json": _JSON,
    },
)
def build(
    _: Context,
    variants: str = "",
    gpu: list[str] | None = None,
    isa: list[str] | None = None,
    all: bool = False,  # noqa: A002 - the option's name
    backend: str = "",
    jobs: str = "1",
    cores: str = "0",
    builders: str = "",
    copy_to: str = "",
    store: str = "",
    secret_key: str = "",
    dry_run: bool = False,
    keep_going: bool = False,
    fail_fast: bool = False,
    fix_hashes: bool = False,
    force: bool = False,
    root: str | None = None,
    json: bool = False,
) -> None:
    """Build variants with Flox or Nix: planned, watched, logged, resumed."""
    asked = {name: value for name, value in locals().items() if name not in {"_", "root"}}

    def run() -> int:
        from build_pytorch.cli import build

        return build.run(build.asked(_root(root), **asked))

    _hand_over(run)


@task(
    klass=WordsTask,
    auto_shortflags=False,
    help={
        "variants": "which variants: ids, package names, patterns such as 'sm120-*' (default: all)",
        "root": _ROOT,
        "json": _JSON,
    },
)
def status(_: Context, variants: str = "", root: str | None = None, json: bool = False) -> None:
    """Say of each variant: recipe current, verified, built, tested, published."""

    def run() -> int:
        from build_pytorch.base.paths import checked_root
        from build_pytorch.cli import status

        return status.run(variants.split(), checked_root(_root(root)), as_json=json)

    _hand_over(run)


@task(
    klass=WordsTask,
    auto_shortflags=False,
    iterable=["runner"],
    help={
        "variants": "which variants: ids, package names, patterns such as 'sm120-*' (default: all)",
        "size": "variants per job; a job never mixes groups",
        "store": "leave out what this binary cache has (asks Nix)",
        "runner": "label of a platform's runners, as x86_64-linux=big; may be given again",
        "root": _ROOT,
    },
)
def ci_matrix(
    _: Context,
    variants: str = "",
    size: str = "1",
    store: str = "",
    runner: list[str] | None = None,
    root: str | None = None,
) -> None:
    """Print the job matrix for GitHub Actions."""

    def run() -> int:
        from build_pytorch.base.paths import checked_root
        from build_pytorch.cli import ci_matrix, cli_values

        place, number = checked_root(_root(root)), cli_values.integer("--size", size)
        return ci_matrix.run(
            variants.split(), place, size=number, store=store, runners=runner or []
        )

    _hand_over(run)


@task(
    auto_shortflags=False,
    help={"output": "write to this file (default, and -: print); an older description is replaced"},
)
def describe_machine(_: Context, output: str | None = None) -> None:
    """Describe this machine as JSON: platform, CPU flags, GPUs, driver; nothing that names it."""

    def run() -> int:
        from build_pytorch.cli import cli_values, recommend

        return recommend.describe(cli_values.text("--output", output))

    _hand_over(run)


@task(
    auto_shortflags=False,
    help={
        "machine": "a file that describe-machine wrote, - reads standard input (default: this one)",
        "for": "inference prefers VNNI, training BF16 (default: training, the higher level)",
        "gpu": "for this GPU only, by its number in nvidia-smi",
        "release": "of this release only",
        "json": _JSON,
        "root": "the checkout whose results are told, with this matrix.toml (default: this one)",
    },
)
def recommend(
    _: Context,
    machine: str | None = None,
    for_: str | None = None,
    gpu: str | None = None,
    release: str | None = None,
    json: bool = False,
    root: str | None = None,
) -> None:
    """Say which variant is right for a machine, what comes next, and why not the others."""

    def run() -> int:
        from build_pytorch.cli import cli_values, recommend

        options = recommend.RecommendOptions(
            machine=cli_values.text("--machine", machine),
            workload=cli_values.text("--for", for_),
            gpu=cli_values.text("--gpu", gpu),
            release=cli_values.text("--release", release),
            json=json,
            root=_root(root),
        )
        return recommend.recommend(options)

    _hand_over(run)


@task(
    klass=WordsTask,
    auto_shortflags=False,
    help={
        "variants": "which variants: ids, package names, patterns such as 'sm120-*' (default: all)",
        "python": "the Python to test in place of the built one; it must have torch",
        "device": "which GPU, as CUDA counts them",
        "timeout": "minutes that one variant may take",
        "json": _JSON,
        "root": _ROOT,
    },
)
def smoke(
    _: Context,
    variants: str = "",
    python: str | None = None,
    device: str = "0",
    timeout: str = "15",
    json: bool = False,
    root: str | None = None,
) -> None:
    """Prove built variants by real work; exit 1 when one fails, 3 when one is not proved."""

    def run() -> int:
        from build_pytorch.cli import cli_values, smoke

        options = smoke.SmokeOptions(
            variants=tuple(variants.split()),
            python=cli_values.text("--python", python),
            device=cli_values.integer("--device", device),
            timeout=cli_values.number("--timeout", timeout),
            json=json,
            root=_root(root),
        )
        return smoke.run(options)

    _hand_over(run)


@task(
    klass=WordsTask,
    auto_shortflags=False,
    help={
        "variants": "which variants: ids, package names, patterns such as 'sm120-*'",
        "org": "the FloxHub organization that gets them (default: yourself)",
        "unproved": "publish what no test has proved, too; the ledger says so",
        "dry-run": "check what Flox would refuse, show what would be published",
        "root": _ROOT,
        "json": _JSON,
    },
)
def publish(
    _: Context,
    variants: str = "",
    org: str | None = None,
    unproved: bool = False,
    dry_run: bool = False,
    root: str | None = None,
    json: bool = False,
) -> None:
    """Publish built and proved variants with Flox, one by one."""

    def run() -> int:
        from build_pytorch.base.paths import checked_root
        from build_pytorch.cli import cli_values, publish

        return publish.run(
            publish.PublishOptions(
                patterns=tuple(variants.split()),
                root=checked_root(_root(root)),
                organization=cli_values.text("--org", org),
                unproved=unproved,
                dry_run=dry_run,
                json=json,
            )
        )

    _hand_over(run)


@task(
    klass=WordsTask,
    auto_shortflags=False,
    help={
        "variants": "which variants: ids, package names, patterns such as 'sm120-*'",
        "path": "prove the files in this folder as one variant, such as a wheel's torch/lib",
        "root": _ROOT,
        "json": _JSON,
    },
)
def prove(
    _: Context,
    variants: str = "",
    path: str | None = None,
    root: str | None = None,
    json: bool = False,
) -> None:
    """Prove built files without a GPU: device code, instructions, config, closure."""

    def run() -> int:
        from build_pytorch.cli import cli_values, inspect

        folder = cli_values.path("--path", path)
        return inspect.run(variants=variants.split(), path=folder, root=_root(root), json=json)

    _hand_over(run)
