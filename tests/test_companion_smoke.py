"""`invoke smoke` for companions: what the script is told, and whose evidence it is."""

from __future__ import annotations

from pathlib import Path

from built_files import small_project
from smoke_reports import Raw, report, right, shown, variant
from test_smoke_command import needs_avx2, printing, result, smoke

from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.source_tables import known_companions
from build_pytorch.results.artefacts import Artefact
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import SmokeRun
from build_pytorch.smoke.smoke_case import judge_run

ID = "cpu-avx2+torchvision"


def companion(matrix: Matrix, id_: str = ID) -> Package:
    return next(package for package in matrix.companions if package.id == id_)


def reported(matrix: Matrix, id_: str = ID, file: str = "/torchvision/__init__.py") -> Raw:
    """What a correct companion reports."""
    package = companion(matrix, id_)
    document = right(package.variant)
    version = package.version
    facts = {"expected": version, "version": version, "file": file}
    return {**document, "companions": {package.name: facts}}


def test_every_companion_has_tests_on_cpu_and_gpu() -> None:
    assert set(script.COMPANIONS) == set(known_companions())
    for companion in script.COMPANIONS:
        for device in ("cpu", "cuda"):
            tests = [t for t in script.declarations() if t["companion"] == companion]
            assert any(t["device"] == device and "pairing" not in t["name"] for t in tests)


@needs_avx2
def test_the_script_is_told_which_companion_must_be_there(tmp_path: Path, matrix: Matrix) -> None:
    python = printing(tmp_path, reported(matrix))
    code = python.read_text() + f"open({str(tmp_path / 'argv')!r}, 'w').write(' '.join(sys.argv))\n"
    python.write_text(code)
    done = smoke(small_project(tmp_path / "project"), ID, "--python", str(python), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "argv").read_text().endswith("--companion=torchvision=0.25.0")
    found = result(done)
    package = "torchvision-python313-cpu-avx2"
    assert (found["variant"], found["package"], found["outcome"]) == (ID, package, "passed")
    assert f"smoke-{package}-" in found["report"]
    assert "torchvision version: 0.25.0" in done.stderr
    assert "torchaudio" not in done.stderr


def test_the_companion_of_a_result_is_imported_from_it(matrix: Matrix, tmp_path: Path) -> None:
    package = companion(matrix)
    built = Artefact(link=tmp_path / "result", output=tmp_path / "store")
    for file, outcome in (
        (tmp_path / "store/lib/torchvision/__init__.py", "passed"),
        (tmp_path / "elsewhere/torchvision/__init__.py", "failed"),
    ):
        document = reported(matrix, file=str(file))
        judgement = judge_run(SmokeRun(report=report(document)), package, built)
        assert judgement.outcome == outcome
    assert judgement.reasons[0].startswith("imports another torchvision, ")


def test_tests_of_companions_are_shown_only_where_they_were_asked_for(matrix: Matrix) -> None:
    def text(document: Raw) -> str:
        package = companion(matrix) if document.get("companions") else variant(matrix, "cpu-avx2")
        return "\n".join(shown(document, package))

    for document in (asked := reported(matrix)), (plain := right(variant(matrix, "cpu-avx2"))):
        for test in document["tests"]:
            test.update(outcome="skipped", message="not today")
    assert "cpu torchvision nms  not today" in text(asked)
    assert "torchaudio" not in text(asked)
    assert "cpu solve  not today" in text(plain)
    assert "torchvision" not in text(plain)
