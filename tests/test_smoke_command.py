"""`invoke smoke` and `nox -s smoke`: which Python runs, what is judged, what is recorded."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from built_files import small_project
from conftest import Project, error_line, needs_nix, unfolded
from smoke_reports import Raw, right, variant

from build_pytorch.base import digest
from build_pytorch.base.console import WIDTH
from build_pytorch.matrix.model import Matrix
from build_pytorch.results.ledger import Event, append, now, read
from build_pytorch.smoke import script

ID = "cpu-avx2"
PACKAGE = "pytorch-python313-cpu-avx2"
LINK = f"result-{PACKAGE}"

needs_avx2 = pytest.mark.skipif(
    platform.machine() != "x86_64" or "avx2" not in script.cpu_facts()["flags"],
    reason="this machine is none of cpu-avx2",
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return small_project(tmp_path / "project", ID)


# --- a Python that a person names ---


def stand_in(folder: Path, code: str) -> Path:
    """A program that stands in for a Python: it does this, whatever it is asked."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{code}\n")
    path.chmod(0o755)
    return path


def printing(folder: Path, document: Raw) -> Path:
    (folder / "report.json").write_text(json.dumps(document))
    return stand_in(folder, f"print(open({str(folder / 'report.json')!r}).read())")


def smoke(project: Project, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return project.run("invoke", "smoke", *argv, env=env)


def result(done: subprocess.CompletedProcess[str]) -> Raw:
    """The only variant of the JSON on stdout."""
    (found,) = json.loads(done.stdout)["variants"]
    assert json.loads(done.stdout)["exit_code"] == done.returncode
    assert isinstance(found, dict)
    return found


def records(project: Project) -> list[Event]:
    return [event for event in read(project.root).events if event.event == "tested"]


@needs_avx2
def test_a_run_with_another_python_is_judged_kept_and_never_recorded(
    project: Project, tmp_path: Path, matrix: Matrix
) -> None:
    document = right(variant(matrix, ID))
    python = printing(tmp_path, document)
    done = smoke(project, f"{ID},sm90-avx2", "--python", str(python), "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    second, first = json.loads(done.stdout)["variants"]
    assert first.keys() == {
        "release", "variant", "package", "outcome", "reasons", "notes",
        "python", "output", "recorded", "report", "script", "counts",
    }  # fmt: skip
    assert (first["outcome"], second["outcome"]) == ("passed", "failed")
    assert (first["recorded"], first["output"]) == (False, "")
    assert "not recorded: this is not the built package" in done.stderr
    assert records(project) == []
    assert first["report"].startswith(f".build-pytorch/reports/smoke-{PACKAGE}-")
    kept = json.loads((project.root / first["report"]).read_text())
    assert kept["script"] == first["script"] == document
    assert kept["outcome"] == "passed"


@needs_avx2
def test_the_script_is_told_which_companion_must_be_there(
    project: Project, tmp_path: Path, matrix: Matrix
) -> None:
    document = right(variant(matrix, ID), torchvision="0.25.0")
    python = printing(tmp_path, document)
    code = python.read_text() + f"open({str(tmp_path / 'argv')!r}, 'w').write(' '.join(sys.argv))\n"
    python.write_text(code)
    done = smoke(project, f"{ID}+torchvision", "--python", str(python), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "argv").read_text().endswith("--companion=torchvision")
    found, package = result(done), "torchvision-python313-cpu-avx2"
    assert (found["variant"], found["package"]) == (f"{ID}+torchvision", package)
    assert f"smoke-{package}-" in found["report"]
    assert "torchvision version: 0.25.0" in done.stderr


@needs_avx2
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "Python ended by SIGSEGV"),
        ("sys.exit(7)", "Python ended with exit code 7: no error output"),
        ("print('{\"schema\": 1}')", "its output is not a report: Invalid enum value 1"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe')", "its output is not a report"),
        # The user's own setting would slow torch down.
        ("sys.exit(os.environ.get('ATEN_CPU_CAPABILITY', 'unset'))", "exit code 1: unset"),
        ("print(open('less.json').read())", "its report does not declare the tests of this script"),
        ("time.sleep(1000)", "no answer after 14 s; it was killed"),
    ],
)
def test_a_python_that_gives_no_report_is_a_failure_with_its_reason(
    project: Project, tmp_path: Path, matrix: Matrix, code: str, says: str
) -> None:
    document, pids = right(variant(matrix, ID)), tmp_path / "pids"
    for part in ("declared", "tests"):
        document[part] = [test for test in document[part] if test["name"] != "cpu solve"]
    (project.root / "less.json").write_text(json.dumps(document))
    python = stand_in(tmp_path, f"open({str(pids)!r}, 'w').write(str(os.getpid()))\n{code}")
    argv = [ID, "--python", str(python), "--timeout", "0.15" if "sleep" in code else "5"]
    done = smoke(project, *argv, ATEN_CPU_CAPABILITY="default")
    assert done.returncode == 1
    assert says in done.stdout
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


def test_wrong_arguments_are_one_line(project: Project, tmp_path: Path, matrix: Matrix) -> None:
    python = str(printing(tmp_path, right(variant(matrix, "sm90-avx2"))))
    for argv, says in {
        "sm99-avx2": 'no package matches "sm99-avx2"',
        f"{ID} --python /nowhere/python": "no such program; name a Python that has torch",
        f"{ID} --python {sys.executable}": "has no torch; name a Python that has it",
        f"{ID} --timeout nan": '--timeout: found "nan"; allowed: a number from 0.01',
        f"{ID} --device -1": '--device: found "-1"; allowed: a whole number from 0',
        f"sm90-avx2 --python {python} --device 1": "--device 1: the last GPU here is 0",
    }.items():
        done = smoke(project, *argv.split(), PYTHONPATH="")
        assert done.returncode == 2, argv
        assert says in error_line(done)


def test_a_link_that_leads_nowhere_is_not_run(project: Project) -> None:
    for target in (LINK, "/etc", "/nix/store/gone"):
        (project.root / LINK).unlink(missing_ok=True)
        (project.root / LINK).symlink_to(target)
        done = smoke(project, ID)
        assert done.returncode == 3
        assert f"{LINK} does not lead into the Nix store" in unfolded(done.stdout)


def test_variants_that_were_not_built_are_not_run_with_the_command_that_builds_them(
    project: Project, matrix: Matrix
) -> None:
    done = smoke(project, "all", "--json")
    assert done.returncode == 3
    outcomes = {v["package"]: v["outcome"] for v in json.loads(done.stdout)["variants"]}
    assert outcomes == {v.package: "not run" for v in matrix.variants}
    assert f"not run: {len(outcomes) - 4} more variants" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= WIDTH
    hint = f"not run: {LINK} does not exist; run `invoke build {ID}`"
    assert hint in unfolded(smoke(project, ID).stdout)


def test_code_for_another_cpu_is_not_started(project: Project, tmp_path: Path) -> None:
    foreign = "sm90-avx2" if platform.machine() == "aarch64" else "sm110-armv9"
    python = stand_in(tmp_path, f"open({str(tmp_path / 'started')!r}, 'w')")
    done = smoke(project, foreign, "--python", str(python))
    assert done.returncode == 3
    assert f"{foreign}: skipped: is for " in done.stdout
    assert not (tmp_path / "started").exists()
    assert records(project) == []


# --- the Python of a built variant: real store paths ---

BUILT = """
{ python }:
let
  make = name: outputs: script: derivation {
    inherit name outputs;
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [ "-ec" "export PATH=/usr/bin:/bin; ${script}" ];
  };
  site = "lib/python3.13/site-packages";
  interpreter = make "python3-3.13.9" [ "out" ] ''
    mkdir -p $out/bin $out/${site}
    cp ${python} $out/bin/python3.13
    chmod +x $out/bin/python3.13
  '';
  other = make "python3-3.12.9" [ "out" ] ''
    mkdir -p $out/bin
    echo 'exit 9' > $out/bin/python3.12
  '';
  # A package that depends on another: what nixpkgs writes for propagatedBuildInputs.
  package = name: inputs: make "python3.13-${name}-1.0" [ "out" ] ''
    mkdir -p $out/${site}/${name} $out/nix-support
    touch $out/${site}/${name}/__init__.py
    echo "${toString inputs}" > $out/nix-support/propagated-build-inputs
  '';
  mpmath = package "mpmath" [ interpreter ];
  sympy = package "sympy" [ mpmath interpreter ];
  stray = package "stray" [ ];
in {
  # As most Python packages are: one output that lists what it needs.
  single = make "python3.13-pytorch210-2.10.0" [ "out" ] ''
    mkdir -p $out/${site}/torch $out/nix-support $out/share
    touch $out/${site}/torch/__init__.py
    echo "${sympy} ${interpreter}" > $out/nix-support/propagated-build-inputs
    echo "${other} ${stray}" > $out/share/refers
  '';
  # As torch is: the list is in `dev`, and the programs in `out` name what they need.
  several = make "python3.13-pytorch210-2.10.0" [ "out" "dev" ] ''
    mkdir -p $out/${site}/torch $out/bin $dev/nix-support
    touch $out/${site}/torch/__init__.py
    echo "${sympy} ${interpreter}" > $dev/nix-support/propagated-build-inputs
    echo "#!${interpreter}/bin/python3.13" > $out/bin/torchrun
    echo "# ${sympy}/${site} ${mpmath}/${site}" >> $out/bin/torchrun
  '';
  bare = make "no-python-2.10.0" [ "out" ] ''
    mkdir $out
  '';
}
"""

# What stands in for the built Python: it finds torch as a real one would, through PYTHONPATH,
# and prints a report with the place of torch as it is.
PYTHON = """\
#!{shebang}
import json, os, sys
assert os.environ["PYTHONNOUSERSITE"] == "1"
import mpmath, sympy, torch
document = json.load(open(os.environ["REPORT"]))
document["torch"]["file"] = os.environ.get("ELSEWHERE") or torch.__file__
document["search"] = os.environ["PYTHONPATH"].split(":")
print(json.dumps(document))
"""


def own_store(folder: Path) -> dict[str, str]:
    """The environment of a Nix store below a folder."""
    return {
        "NIX_REMOTE": "local",
        "NIX_STORE_DIR": f"{folder}/nix/store",
        "NIX_STATE_DIR": f"{folder}/nix/state",
        "NIX_LOG_DIR": f"{folder}/nix/log",
        "NIX_CONFIG": "substituters =\nbuild-users-group =\nsandbox = false",
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, Path]]:
    """A Nix store of its own, and the results of BUILT in it by attribute."""
    folder = tmp_path_factory.mktemp("store")
    env = own_store(folder)
    (folder / "python").write_text(PYTHON.format(shebang=sys.executable))
    (folder / "built.nix").write_text(BUILT)
    outputs = {}
    for attribute in ("single", "several", "bare"):
        argv = ["nix-build", "built.nix", "-A", attribute, "-o", attribute]
        argv += ["--arg", "python", str(folder / "python")]
        subprocess.run(argv, cwd=folder, env={**os.environ, **env}, capture_output=True, check=True)
        outputs[attribute] = (folder / attribute).resolve()
    return env, outputs


class Store:
    """A project with links to results in a store."""

    def __init__(self, project: Project, folder: Path, env: dict[str, str], document: Raw) -> None:
        self.project = project
        self.folder = folder
        self.env = {**env, "REPORT": str(folder / "report.json")}
        self.report(document)

    def report(self, document: Raw) -> None:
        """Let the built Python print this."""
        Path(self.env["REPORT"]).write_text(json.dumps(document))

    def remember(self, digest: str) -> None:
        """A line of the ledger: the result was built from a recipe with this digest."""
        output = str((self.project.root / LINK).resolve())
        event = Event(
            event="ended", at=now(), release="cuda13_0", variant=ID,
            digest=digest, attempt="1", outcome="built", seconds=1.0, outputs=(output,),
        )  # fmt: skip
        append(self.project.root, event)

    @property
    def current(self) -> str:
        """The digest of the recipe as it is."""
        return digest.of_bytes(self.project.recipe(ID).read_bytes())

    def smoke(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return smoke(self.project, ID, *argv, **self.env, **env)


@pytest.fixture
def store(
    project: Project,
    tmp_path: Path,
    matrix: Matrix,
    built: tuple[dict[str, str], dict[str, Path]],
    request: pytest.FixtureRequest,
) -> Store:
    """A result of cpu-avx2: `single`, or what a test names."""
    env, outputs = built
    (project.root / LINK).symlink_to(outputs[getattr(request, "param", "single")])
    return Store(project, tmp_path, env, right(variant(matrix, ID)))


@needs_nix
@needs_avx2
@pytest.mark.parametrize("store", ["single", "several"], indirect=True)
def test_the_python_of_a_result_is_found_through_its_closure_and_imports_it(store: Store) -> None:
    done = store.smoke("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = result(done)
    assert found["outcome"] == "passed"
    assert found["output"] == str((store.project.root / LINK).resolve())
    assert re.fullmatch(r".*/nix/store/\w+-python3-3\.13\.9/bin/python3\.13", found["python"])
    names = [path.split("/")[-4].partition("-")[2] for path in found["script"]["search"]]
    first = "python3.13-pytorch210-2.10.0"
    assert names[0] == first
    # What it propagates comes before the rest of its closure; its own modules it finds by itself.
    needed = ["python3.13-sympy-1.0", "python3.13-mpmath-1.0"]
    assert names == [first, *needed, "python3.13-stray-1.0"] or set(names) == {first, *needed}
    assert found["recorded"] is False
    assert "the ledger has no recipe for this result" in done.stderr
    assert f"run `invoke build {ID}`, which records" in done.stderr
    assert records(store.project) == []


@needs_nix
@needs_avx2
@pytest.mark.parametrize("store", ["bare"], indirect=True)
def test_a_result_without_a_python_is_not_run(store: Store) -> None:
    output = (store.project.root / LINK).resolve()
    done = store.smoke()
    assert done.returncode == 3
    why = f"its closure has no Python 3.13; is {output} a Python package?"
    assert why in unfolded(done.stdout)
    assert records(store.project) == []


@needs_nix
@needs_avx2
def test_evidence_is_recorded_with_its_recipe_its_store_path_and_its_report(
    store: Store, matrix: Matrix
) -> None:
    tools = store.folder / "tools"  # without Nix: then the closure is what the packages list
    tools.mkdir()
    (tools / "git").symlink_to("/usr/bin/git")
    older = ["sha256:" + digit * 64 for digit in "12"]
    store.remember(older[0])
    store.smoke(PATH=str(tools))
    store.remember(store.current)
    store.remember(older[1])  # the same result of another recipe: the current counts
    found = result(store.smoke("--json"))
    document = right(variant(matrix, ID))
    document["torch"]["version"] = "2.9.1"
    store.report(document)
    store.smoke()
    first, second, third = records(store.project)
    assert [e.digest for e in (first, second, third)] == [older[0], store.current, store.current]
    assert [(e.outcome, e.reason) for e in (first, second, third)] == [
        ("passed", ""), ("passed", ""), ("failed", "is PyTorch 2.9.1, not 2.10.0"),
    ]  # fmt: skip
    assert second.subject == ("cuda13_0", ID)
    assert (second.by, second.output, second.report) == ("smoke", found["output"], found["report"])
    assert json.loads((store.project.root / second.report).read_text())["digest"] == second.digest


@needs_nix
@needs_avx2
def test_another_torch_is_no_evidence_for_the_result(store: Store, matrix: Matrix) -> None:
    store.remember(store.current)
    done = store.smoke(ELSEWHERE="/usr/lib/torch/__init__.py")
    assert done.returncode == 1
    assert "imports another torch, /usr/lib/torch/__init__.py" in done.stdout
    document, before = right(variant(matrix, ID)), len(records(store.project))
    output = (store.project.root / LINK).resolve()
    for file in (
        "/usr/lib/torch/__init__.py",
        f"{output}/lib/python3.13/site-packages/torch/__init__.py",
    ):
        document["torch"]["file"] = file
        done = store.smoke("--python", str(printing(store.folder, document)), "--json")
        assert result(done)["recorded"] is file.startswith(str(output))
    assert len(records(store.project)) == before + 1
    reports = store.project.root / ".build-pytorch/reports"
    reports.rename(reports.with_name("elsewhere"))
    reports.write_text("a file where the folder should be")
    done = store.smoke()
    assert done.returncode == 2
    assert "cannot be written" in error_line(done)
    assert len(records(store.project)) == before + 1
