"""`invoke smoke` and `nox -s smoke`: which Python runs, what is judged, what is recorded."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from built_files import small_project
from conftest import Project, error_line, needs_nix, unfolded
from smoke_reports import Raw, right, variant

from build_pytorch.base import digest
from build_pytorch.base.console import WIDTH
from build_pytorch.matrix.model import Matrix
from build_pytorch.results.ledger import Ended, Ledger, now
from build_pytorch.results.ledger import Tested as Evidence
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


@needs_avx2
def test_two_tests_of_one_name_are_an_error_of_the_script(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = script.tests()[0].name
    monkeypatch.setattr(script, "_declared", [*script.tests(), script.tests()[0]])
    done = smoke(project, ID, "--python", str(stand_in(tmp_path, "")))
    assert done.returncode == 2
    assert error_line(done) == f"{script.__file__}: two tests have the name {name}; rename one"


def smoke(project: Project, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return project.run("invoke", "smoke", *argv, env=env)


def result(done: subprocess.CompletedProcess[str]) -> Raw:
    """The only variant of the JSON on stdout."""
    (found,) = json.loads(done.stdout)["variants"]
    assert json.loads(done.stdout)["exit_code"] == done.returncode
    assert isinstance(found, dict)
    return found


def records(project: Project) -> list[Evidence]:
    return [event for event in Ledger(project.root).events() if isinstance(event, Evidence)]


@needs_avx2
def test_a_run_with_another_python_is_judged_kept_and_never_recorded(
    project: Project, tmp_path: Path, matrix: Matrix
) -> None:
    document = right(variant(matrix, ID))
    python = printing(tmp_path, document)
    done = smoke(project, ID, "sm90-avx2", "--python", str(python), "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    second, first = json.loads(done.stdout)["variants"]
    assert first.keys() == {
        "release", "variant", "package", "outcome", "reasons", "notes", "fit", "cpu", "gpu",
        "python", "output", "recorded", "report", "script",
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
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "Python ended by SIGSEGV"),
        ("sys.exit('no such library')", "Python ended with exit code 1: no such library"),
        ("sys.exit(7)", "Python ended with exit code 7: no error output"),
        ("print('PyTorch version: 2.10.0')", "its output is not a report"),
        ("print('{\"schema\": 2}')", "its output is not a report"),
        ("pass", "its output is not a report"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe')", "its output is not a report"),
        # The user's own setting would slow torch down.
        ("sys.exit(os.environ.get('ATEN_CPU_CAPABILITY', 'unset'))", "exit code 1: unset"),
    ],
)
def test_a_python_that_gives_no_report_is_a_failure_with_its_reason(
    project: Project, tmp_path: Path, code: str, says: str
) -> None:
    python = str(stand_in(tmp_path, code))
    done = smoke(project, ID, "--python", python, ATEN_CPU_CAPABILITY="default")
    assert done.returncode == 1
    assert f"{ID}: failed: " in done.stdout
    assert says in done.stdout


@needs_avx2
def test_a_new_run_must_declare_every_test_of_this_script(
    project: Project, tmp_path: Path, matrix: Matrix
) -> None:
    document = right(variant(matrix, ID))
    for part in ("declared", "tests"):
        document[part] = [test for test in document[part] if test["name"] != "cpu solve"]
    done = smoke(project, ID, "--python", str(printing(tmp_path, document)))
    assert done.returncode == 1
    assert f"{ID}: failed: its report does not declare the tests of this script" in done.stdout
    done = smoke(project, ID, "--python", str(printing(tmp_path, {**document, "schema": 1})))
    assert f"{ID}: failed: its output is not a report: Invalid enum value 1" in done.stdout


@needs_avx2
def test_a_hang_is_ended_by_the_timeout(project: Project, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"open({str(pids)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)"
    limits = {"0.01": "1.2", "0.3": "36"}  # on a busy machine, the program starts late
    for minutes in limits:
        done = smoke(project, ID, "--python", str(stand_in(tmp_path, code)), "--timeout", minutes)
        if pids.exists():
            break
    assert done.returncode == 1
    assert f"{ID}: failed: no answer after {limits[minutes]} s; it was killed" in done.stdout
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


@needs_avx2
def test_a_python_without_torch_is_bad_input(project: Project) -> None:
    done = smoke(project, ID, "--python", sys.executable, PYTHONPATH="")
    assert done.returncode == 2
    assert "has no torch; name a Python that has it" in error_line(done)
    assert not (project.root / ".build-pytorch/reports").exists()


def test_wrong_arguments_are_one_line(project: Project, tmp_path: Path, matrix: Matrix) -> None:
    python = printing(tmp_path, right(variant(matrix, "sm90-avx2")))
    for argv, says in (
        (["sm99-avx2"], 'no variant matches "sm99-avx2"'),
        ([ID, "--python", "/nowhere/python"], "no such program; name a Python that has torch"),
        ([ID, "--timeout", "0"], "--timeout 0: give minutes, more than 0"),
        ([ID, "--timeout", "nan"], "--timeout nan: give minutes"),
        ([ID, "--device", "-1"], '--device: found "-1"; allowed: a whole number from 0'),
        (["sm90-avx2", "--python", str(python), "--device", "1"],
         "--device 1: the last GPU here is 0"),
    ):  # fmt: skip
        done = smoke(project, *argv)
        assert done.returncode == 2, argv
        assert says in error_line(done)


def test_variants_that_were_not_built_are_not_run_with_the_command_that_builds_them(
    project: Project, matrix: Matrix
) -> None:
    done = smoke(project, "--json")
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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, Path]]:
    """A Nix store of its own, and the results of BUILT in it by attribute."""
    folder = tmp_path_factory.mktemp("store")
    env = {
        "NIX_REMOTE": "local",
        "NIX_STORE_DIR": f"{folder}/nix/store",
        "NIX_STATE_DIR": f"{folder}/nix/state",
        "NIX_LOG_DIR": f"{folder}/nix/log",
        "NIX_CONFIG": "substituters =\nbuild-users-group =\nsandbox = false",
    }
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
        Ledger(self.project.root).append(
            Ended(
                at=now(), release="cuda13_0", variant=ID, digest=digest, attempt="1",
                outcome="built", seconds=1.0, outputs=(output,),
            )
        )  # fmt: skip

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
@pytest.mark.parametrize("is_right", [True, False])
def test_evidence_is_recorded_with_its_recipe_its_store_path_and_its_report(
    store: Store, matrix: Matrix, *, is_right: bool
) -> None:
    document = right(variant(matrix, ID))
    document["torch"]["version"] = "2.10.0" if is_right else "2.9.1"
    store.report(document)
    store.remember("sha256:" + "1" * 64)
    store.remember(store.current)
    store.remember("sha256:" + "2" * 64)  # the same result of another recipe: the current counts
    found = result(store.smoke("--json"))
    (event,) = records(store.project)
    assert event.subject == ("cuda13_0", ID)
    assert event.digest == store.current
    assert (event.by, event.output, event.report) == ("smoke", found["output"], found["report"])
    wrong = ("failed", "is PyTorch 2.9.1, not 2.10.0")
    assert (event.outcome, event.reason) == (("passed", "") if is_right else wrong)
    assert json.loads((store.project.root / event.report).read_text())["digest"] == event.digest


@needs_nix
@needs_avx2
def test_a_result_of_an_older_recipe_is_recorded_for_that_one(store: Store) -> None:
    store.remember("sha256:" + "1" * 64)
    store.remember("sha256:" + "2" * 64)
    store.smoke()
    (event,) = records(store.project)
    assert event.digest == "sha256:" + "2" * 64


@needs_nix
@needs_avx2
@pytest.mark.parametrize("is_result", [True, False])
def test_another_python_is_evidence_only_if_it_imports_the_result(
    store: Store, matrix: Matrix, *, is_result: bool
) -> None:
    store.remember(store.current)
    document = right(variant(matrix, ID))
    output = (store.project.root / LINK).resolve()
    if is_result:
        document["torch"]["file"] = f"{output}/lib/python3.13/site-packages/torch/__init__.py"
    done = store.smoke("--python", str(printing(store.folder, document)), "--json")
    assert result(done)["recorded"] is is_result
    assert len(records(store.project)) == is_result


@needs_nix
@needs_avx2
def test_a_built_python_that_imports_another_torch_fails(store: Store) -> None:
    done = store.smoke(ELSEWHERE="/usr/lib/torch/__init__.py")
    assert done.returncode == 1
    assert "imports another torch, /usr/lib/torch/__init__.py" in done.stdout


@pytest.mark.parametrize("target", [LINK, "/nowhere", "/etc", "/nix/store/gone"])
def test_a_link_that_leads_nowhere_is_not_run(project: Project, target: str) -> None:
    (project.root / LINK).symlink_to(target)
    done = smoke(project, ID)
    assert done.returncode == 3
    assert f"{LINK} does not lead into the Nix store" in unfolded(done.stdout)


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
def test_without_nix_the_closure_is_what_the_packages_list(store: Store) -> None:
    tools = store.folder / "tools"  # a PATH on which there is no Nix
    tools.mkdir()
    (tools / "git").symlink_to("/usr/bin/git")
    found = result(store.smoke("--json", PATH=str(tools)))
    assert found["outcome"] == "passed"
    assert len(found["script"]["search"]) == 3


@needs_nix
@needs_avx2
def test_a_report_that_cannot_be_kept_is_one_line_and_no_record(store: Store) -> None:
    state = store.project.root / ".build-pytorch"
    state.mkdir(exist_ok=True)
    (state / "reports").write_text("a file where the folder should be")
    done = store.smoke()
    assert done.returncode == 2
    assert "cannot be written" in error_line(done)
    assert records(store.project) == []


# --- a real torch, from the command to the judgement ---


@needs_avx2
@pytest.mark.skipif(
    not os.environ.get("BUILD_PYTORCH_TEST_TORCH"),
    reason="BUILD_PYTORCH_TEST_TORCH names no Python that has torch",
)
def test_a_real_wheel_fails_for_its_version_though_its_tests_pass(project: Project) -> None:
    torch = os.environ["BUILD_PYTORCH_TEST_TORCH"]
    argv = ("nox", "-s", "smoke", "--", ID, "sm90-avx2", "--json", "--python", torch)
    done = project.run(*argv, env={"CUDA_VISIBLE_DEVICES": ""}, seconds=600)
    assert done.returncode == 1, done.stderr
    found: dict[str, Any] = {v["variant"]: v for v in json.loads(done.stdout)["variants"]}
    assert found["cpu-avx2"]["cpu"] == found["sm90-avx2"]["cpu"] == "passed"
    version = found["cpu-avx2"]["script"]["torch"]["version"]
    assert f"is PyTorch {version}, not 2.10.0" in found["cpu-avx2"]["reasons"]
    if found["sm90-avx2"]["script"]["torch"]["cuda"] is None:
        only = "is a CPU-only PyTorch: it was built without CUDA"
        assert only in found["sm90-avx2"]["reasons"]
