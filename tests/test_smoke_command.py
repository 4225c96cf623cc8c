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
from conftest import Project, error_line, needs_nix
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
    return project.run("nox", "-s", "smoke", "--", *argv, env=env)


def result(done: subprocess.CompletedProcess[str]) -> Raw:
    """The only variant of the JSON on stdout."""
    (found,) = json.loads(done.stdout)["variants"]
    assert json.loads(done.stdout)["exit_code"] == done.returncode
    assert isinstance(found, dict)
    return found


def records(project: Project) -> list[Evidence]:
    return [event for event in Ledger(project.root).events() if isinstance(event, Evidence)]


@needs_avx2
def test_a_right_report_passes(project: Project, tmp_path: Path, fleet: Matrix) -> None:
    python = printing(tmp_path, right(variant(fleet, ID)))
    done = smoke(project, ID, "--python", str(python))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PyTorch version: 2.10.0" in done.stdout
    assert "cpu-avx2: passed" in done.stdout


@needs_avx2
def test_invoke_does_the_same(project: Project, tmp_path: Path, fleet: Matrix) -> None:
    python = printing(tmp_path, right(variant(fleet, ID)))
    done = project.invoke("smoke", ID, "sm90-avx2", "--python", str(python), "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    outcomes = {v["variant"]: v["outcome"] for v in json.loads(done.stdout)["variants"]}
    assert outcomes == {"cpu-avx2": "passed", "sm90-avx2": "failed"}


@needs_avx2
def test_a_run_with_another_python_is_judged_and_never_recorded(
    project: Project, tmp_path: Path, fleet: Matrix
) -> None:
    python = printing(tmp_path, right(variant(fleet, ID)))
    done = smoke(project, ID, "--python", str(python), "--json")
    found = result(done)
    assert (found["outcome"], found["recorded"], found["output"]) == ("passed", False, "")
    assert "not recorded: this is not the built package" in done.stderr
    assert records(project) == []


@needs_avx2
def test_the_whole_report_is_kept_below_the_state_folder(
    project: Project, tmp_path: Path, fleet: Matrix
) -> None:
    document = right(variant(fleet, ID))
    done = smoke(project, ID, "--python", str(printing(tmp_path, document)), "--json")
    file = result(done)["report"]
    assert file.startswith(f".build-pytorch/reports/smoke-{PACKAGE}-")
    kept = json.loads((project.root / file).read_text())
    assert kept["script"] == result(done)["script"] == document
    assert kept["outcome"] == "passed"
    assert [path.name for path in (project.root / file).parent.iterdir()] == [Path(file).name]


@needs_avx2
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "Python ended by SIGSEGV"),
        ("sys.exit('no such library')", "Python ended with exit code 1: no such library"),
        ("sys.exit(7)", "Python ended with exit code 7: no error output"),
        ("print('PyTorch version: 2.10.0')", "its output is not a report"),
        ("print('{}')", "its output is not a report"),
        ("pass", "its output is not a report"),
        ("print('{\"schema\": 2}')", "its output is not a report"),
        ("print('[]')", "its output is not a report"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe')", "its output is not a report"),
    ],
)
def test_a_python_that_gives_no_report_is_a_failure_with_its_reason(
    project: Project, tmp_path: Path, code: str, says: str
) -> None:
    done = smoke(project, ID, "--python", str(stand_in(tmp_path, code)))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"{ID}: failed: {says}" in done.stdout


@needs_avx2
def test_a_new_run_must_declare_every_test_of_this_script(
    project: Project, tmp_path: Path, fleet: Matrix
) -> None:
    document = right(variant(fleet, ID))
    for part in ("declared", "tests"):
        document[part] = [test for test in document[part] if test["name"] != "cpu solve"]
    done = smoke(project, ID, "--python", str(printing(tmp_path, document)))
    assert done.returncode == 1
    assert f"{ID}: failed: its report does not declare the tests of this script" in done.stdout
    old = {**document, "schema": 1}
    done = smoke(project, ID, "--python", str(printing(tmp_path, old)))
    assert f"{ID}: failed: its output is not a report: Invalid enum value 1" in done.stdout


@needs_avx2
def test_a_hang_is_ended_by_the_timeout(project: Project, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"open({str(pids)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)"
    limits = {"0.02": "2.4", "0.3": "36"}  # on a busy machine, the program starts late
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


def test_wrong_arguments_are_one_line(project: Project, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    text.chmod(0o755)
    for argv, says in (
        (["sm99-avx2"], 'no variant matches "sm99-avx2"'),
        ([ID, "--python", "/nowhere/python"], "no such program; name a Python that has torch"),
        ([ID, "--timeout", "0"], "--timeout 0: give minutes, more than 0"),
        ([ID, "--timeout", "nan"], "--timeout nan: give minutes"),
        ([ID, "--device", "-1"], '--device: found "-1"; allowed: a whole number from 0'),
        ([ID, "--root", "/nowhere"], "--root /nowhere: no such folder"),
    ):
        done = smoke(project, *argv)
        assert done.returncode == 2, argv
        assert says in error_line(done)


@needs_avx2
def test_a_gpu_that_is_not_there_is_bad_input(
    project: Project, tmp_path: Path, fleet: Matrix
) -> None:
    python = printing(tmp_path, right(variant(fleet, "sm90-avx2")))
    done = smoke(project, "sm90-avx2", "--python", str(python), "--device", "1")
    assert done.returncode == 2
    assert error_line(done) == "--device 1: the last GPU here is 0"


def test_a_variant_that_was_not_built_is_not_run_with_the_command_that_builds_it(
    project: Project,
) -> None:
    done = smoke(project, ID)
    assert done.returncode == 3
    assert f"{ID}: not run: {LINK} does not exist; run `invoke build {ID}`" in " ".join(
        done.stdout.split()
    )
    lines = smoke(project).stdout.splitlines()
    assert max(map(len, lines)) <= WIDTH


def test_all_variants_end_in_a_state(project: Project, fleet: Matrix) -> None:
    done = smoke(project, "--json")
    assert done.returncode == 3
    outcomes = {v["package"]: v["outcome"] for v in json.loads(done.stdout)["variants"]}
    assert outcomes == {v.package: "not run" for v in fleet.variants}
    assert "not run: 40 more variants" in done.stderr


def test_code_for_another_cpu_is_not_started(project: Project, tmp_path: Path) -> None:
    foreign = "sm90-avx2" if platform.machine() == "aarch64" else "sm110-armv9"
    python = stand_in(tmp_path, f"open({str(tmp_path / 'started')!r}, 'w')")
    done = smoke(project, foreign, "--python", str(python))
    assert done.returncode == 3
    assert f"{foreign}: skipped: is for " in done.stdout
    assert not (tmp_path / "started").exists()
    assert records(project) == []


@needs_avx2
def test_a_setting_that_slows_torch_down_does_not_reach_it(
    project: Project, tmp_path: Path
) -> None:
    python = stand_in(tmp_path, "sys.exit(os.environ.get('ATEN_CPU_CAPABILITY', 'unset'))")
    done = smoke(project, ID, "--python", str(python), ATEN_CPU_CAPABILITY="default")
    assert "exit code 1: unset" in done.stdout


# --- the Python of a built variant: real store paths ---

BUILT = """
{ report, python }:
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
    cp ${report} $out/${site}/torch/report.json
    touch $out/${site}/torch/__init__.py
    echo "${sympy} ${interpreter}" > $out/nix-support/propagated-build-inputs
    echo "${other} ${stray}" > $out/share/refers
  '';
  # As torch is: the list is in `dev`, and the programs in `out` name what they need.
  several = make "python3.13-pytorch210-2.10.0" [ "out" "dev" ] ''
    mkdir -p $out/${site}/torch $out/bin $dev/nix-support
    cp ${report} $out/${site}/torch/report.json
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
# and prints the report that lies beside it, with the place of torch as it is.
PYTHON = """\
#!{shebang}
import json, os, sys
assert os.environ["PYTHONNOUSERSITE"] == "1"
import mpmath, sympy, torch
document = json.load(open(os.path.join(os.path.dirname(torch.__file__), "report.json")))
document["torch"]["file"] = os.environ.get("ELSEWHERE") or torch.__file__
document["search"] = os.environ["PYTHONPATH"].split(":")
print(json.dumps(document))
"""


class Store:
    """A Nix store of its own, and results in it."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project = project
        self.folder = folder
        self.env = {
            "NIX_REMOTE": "local",
            "NIX_STORE_DIR": f"{folder}/nix/store",
            "NIX_STATE_DIR": f"{folder}/nix/state",
            "NIX_LOG_DIR": f"{folder}/nix/log",
            "NIX_CONFIG": "substituters =\nbuild-users-group =\nsandbox = false",
        }

    def build(self, attribute: str, document: Raw) -> Path:
        """Build a result and link to it as `flox build` does; returns its store path."""
        report = self.folder / "report.json"
        report.write_text(json.dumps(document))
        python = self.folder / "python"
        python.write_text(PYTHON.format(shebang=sys.executable))
        expression = self.folder / "built.nix"
        expression.write_text(BUILT)
        argv = ["nix-build", str(expression), "-A", attribute, "-o", LINK]
        argv += ["--arg", "report", str(report), "--arg", "python", str(python)]
        done = subprocess.run(
            argv,
            cwd=self.project.root,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return (self.project.root / LINK).resolve()

    def remember(self, digest: str) -> None:
        """A line of the ledger: the result was built from a recipe with this digest."""
        Ledger(self.project.root).append(
            Ended(
                at=now(),
                release="cuda13_0",
                variant=ID,
                digest=digest,
                attempt="1",
                outcome="built",
                seconds=1.0,
                outputs=(str((self.project.root / LINK).resolve()),),
            )
        )

    def remember_current(self) -> None:
        """The same for the recipe as it is."""
        self.remember(digest.of_bytes(self.project.recipe(ID).read_bytes()))

    def smoke(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return smoke(self.project, ID, *argv, **self.env, **env)


@pytest.fixture
def store(project: Project, tmp_path: Path) -> Store:
    folder = tmp_path / "store"
    folder.mkdir()
    return Store(project, folder)


@needs_nix
@needs_avx2
@pytest.mark.parametrize("attribute", ["single", "several"])
def test_the_python_of_a_result_is_found_through_its_closure_and_imports_it(
    store: Store, fleet: Matrix, attribute: str
) -> None:
    output = store.build(attribute, right(variant(fleet, ID)))
    done = store.smoke("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = result(done)
    assert found["outcome"] == "passed"
    assert found["output"] == str(output)
    assert re.fullmatch(r".*/nix/store/\w+-python3-3\.13\.9/bin/python3\.13", found["python"])
    names = [path.split("/")[-4].partition("-")[2] for path in found["script"]["search"]]
    assert names[0] == "python3.13-pytorch210-2.10.0"
    assert {"python3.13-sympy-1.0", "python3.13-mpmath-1.0"} <= set(names)
    assert "python3-3.13.9" not in names  # its own modules it finds by itself


@needs_nix
@needs_avx2
def test_what_a_result_propagates_comes_before_the_rest_of_its_closure(
    store: Store, fleet: Matrix
) -> None:
    store.build("single", right(variant(fleet, ID)))
    search = result(store.smoke("--json"))["script"]["search"]
    names = [path.split("/")[-4].partition("-")[2] for path in search]
    assert names == [
        "python3.13-pytorch210-2.10.0",
        "python3.13-sympy-1.0",
        "python3.13-mpmath-1.0",
        "python3.13-stray-1.0",
    ]


@needs_nix
@needs_avx2
def test_evidence_is_recorded_with_its_recipe_its_store_path_and_its_report(
    store: Store, fleet: Matrix
) -> None:
    output = store.build("single", right(variant(fleet, ID)))
    store.remember_current()
    found = result(store.smoke("--json"))
    (event,) = records(store.project)
    recipe = store.project.recipe("cpu-avx2")
    assert event.subject == ("cuda13_0", ID)
    assert event.digest == digest.of_bytes(recipe.read_bytes())
    assert (event.by, event.outcome, event.output) == ("smoke", "passed", str(output))
    assert event.report == found["report"]
    assert json.loads((store.project.root / event.report).read_text())["digest"] == event.digest


@needs_nix
@needs_avx2
def test_a_failure_is_recorded_as_well_with_its_reason(store: Store, fleet: Matrix) -> None:
    document = right(variant(fleet, ID))
    document["torch"]["version"] = "2.9.1"
    store.build("single", document)
    store.remember_current()
    assert store.smoke().returncode == 1
    (event,) = records(store.project)
    assert (event.outcome, event.reason) == ("failed", "is PyTorch 2.9.1, not 2.10.0")


@needs_nix
@needs_avx2
def test_the_artefact_may_be_tested_by_another_python_and_is_recorded(
    store: Store, fleet: Matrix
) -> None:
    output = store.build("single", right(variant(fleet, ID)))
    store.remember_current()
    document = right(variant(fleet, ID))
    document["torch"]["file"] = f"{output}/lib/python3.13/site-packages/torch/__init__.py"
    done = store.smoke("--python", str(printing(store.folder, document)), "--json")
    assert result(done)["recorded"] is True
    assert len(records(store.project)) == 1


@needs_nix
@needs_avx2
def test_another_torch_beside_a_result_is_no_evidence_for_it(store: Store, fleet: Matrix) -> None:
    store.build("single", right(variant(fleet, ID)))
    python = printing(store.folder, right(variant(fleet, ID)))
    assert result(store.smoke("--python", str(python), "--json"))["recorded"] is False
    assert records(store.project) == []


@needs_nix
@needs_avx2
def test_a_built_python_that_imports_another_torch_fails(store: Store, fleet: Matrix) -> None:
    store.build("single", right(variant(fleet, ID)))
    done = store.smoke(ELSEWHERE="/usr/lib/torch/__init__.py")
    assert done.returncode == 1
    assert "imports another torch, /usr/lib/torch/__init__.py" in done.stdout


@needs_nix
@needs_avx2
def test_a_result_of_unknown_origin_is_judged_and_not_recorded(store: Store, fleet: Matrix) -> None:
    store.build("single", right(variant(fleet, ID)))
    done = store.smoke("--json")
    assert result(done)["outcome"] == "passed"
    assert result(done)["recorded"] is False
    assert "the ledger has no recipe for this result" in done.stderr
    assert f"run `invoke build {ID}`, which records" in done.stderr
    assert records(store.project) == []


@needs_nix
@needs_avx2
def test_a_result_of_an_older_recipe_is_recorded_for_that_one(store: Store, fleet: Matrix) -> None:
    store.build("single", right(variant(fleet, ID)))
    store.remember("sha256:" + "1" * 64)
    store.remember("sha256:" + "2" * 64)
    store.smoke()
    (event,) = records(store.project)
    assert event.digest == "sha256:" + "2" * 64


@needs_nix
@needs_avx2
def test_a_result_of_two_recipes_is_of_the_current_one(store: Store, fleet: Matrix) -> None:
    store.build("single", right(variant(fleet, ID)))
    store.remember_current()
    store.remember("sha256:" + "2" * 64)
    store.smoke()
    (event,) = records(store.project)
    assert event.digest == digest.of_bytes(store.project.recipe(ID).read_bytes())


@pytest.mark.parametrize("target", [LINK, "/nowhere", "/etc"])
def test_a_link_that_leads_nowhere_is_not_run(project: Project, target: str) -> None:
    (project.root / LINK).symlink_to(target)
    done = smoke(project, ID)
    assert done.returncode == 3
    assert f"{LINK} does not lead into the Nix store" in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr


@needs_nix
@needs_avx2
def test_a_result_without_a_python_is_not_run(store: Store, fleet: Matrix) -> None:
    output = store.build("bare", right(variant(fleet, ID)))
    done = store.smoke()
    assert done.returncode == 3
    assert f"its closure has no Python 3.13; is {output} a Python package?" in " ".join(
        done.stdout.split()
    )
    assert records(store.project) == []


def test_a_result_that_was_collected_as_garbage_is_not_run(project: Project) -> None:
    (project.root / LINK).symlink_to("/nix/store/gone")
    assert smoke(project, ID).returncode == 3


@needs_nix
@needs_avx2
def test_without_nix_the_closure_is_what_the_packages_list(store: Store, fleet: Matrix) -> None:
    store.build("single", right(variant(fleet, ID)))
    tools = store.folder / "tools"  # a PATH on which there is no Nix
    tools.mkdir()
    (tools / "git").symlink_to("/usr/bin/git")
    found = result(store.smoke("--json", PATH=str(tools)))
    assert found["outcome"] == "passed"
    assert len(found["script"]["search"]) == 3


@needs_nix
@needs_avx2
def test_a_report_that_cannot_be_kept_is_one_line_and_no_record(
    store: Store, fleet: Matrix
) -> None:
    store.build("single", right(variant(fleet, ID)))
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
