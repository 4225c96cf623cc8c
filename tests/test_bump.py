"""Moving a release: GitHub asked over real HTTP, hashes taken, everything written or nothing."""

from __future__ import annotations

import base64
import contextlib
import difflib
import json
import re
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import ONE, PROJECT, WHOLE, Project, error_line, needs_nix
from one_release import written_out
from test_pin_facts import nixpkgs
from test_prefetch import OTHER, tool

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.file_plan import Action
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.sources.github import GitHub
from build_pytorch.sources.move_checks import asked_move, check_upstream
from build_pytorch.sources.planned_change import plan_files
from build_pytorch.sources.release_move import NewVersions, ReleaseMove, new_versions

PIN = "6a030d535719c5190187c4cec156f335e95e3211"
NEW_PIN = "1123456789abcdef0123456789abcdef01234567"

NIGHTLY = "3123456789abcdef0123456789abcdef01234567"
TRITON = ".ci/docker/ci_commit_pins/triton.txt"

__all__ = ["nixpkgs"]  # a fixture

Answer = tuple[int, dict[str, str], bytes]


def ok(document: Any) -> Answer:
    return 200, {}, json.dumps(document).encode()


def commit(rev: str, day: str) -> Answer:
    return ok({"sha": rev, "commit": {"committer": {"date": f"{day}T08:00:00Z"}}})


def content(text: str) -> Answer:
    return ok({"content": base64.encodebytes(text.encode()).decode()})


class Api:
    """GitHub's API on this machine. Answers may be lists: one for each time that it is asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.reason: str | None = None
        self.trickle = False
        self.answers: dict[str, Answer | list[Answer] | Callable[[], Answer]] = {
            "/repos/pytorch/pytorch/git/ref/tags/v2.11.0": ok({"ref": "refs/tags/v2.11.0"}),
            "/repos/pytorch/pytorch/git/ref/tags/v2.12.0rc1": ok({"ref": "refs/tags/v2.12.0rc1"}),
            "/repos/pytorch/pytorch/releases?per_page=50": ok(
                [
                    {"tag_name": "v2.12.0rc1", "prerelease": True},
                    {"tag_name": "v2.11.0", "prerelease": False},
                    {"tag_name": "v2.9.1", "prerelease": False},
                    {"tag_name": "ciflow/odd", "prerelease": False},
                ]
            ),
            f"/repos/NixOS/nixpkgs/commits/{NEW_PIN}": commit(NEW_PIN, "2026-11-01"),
            "/repos/NixOS/nixpkgs/commits/nixos-unstable": commit(NEW_PIN, "2026-11-01"),
            "/repos/pytorch/pytorch/commits/nightly": commit(NIGHTLY, "2026-06-30"),
            f"/repos/pytorch/pytorch/contents/version.txt?ref={NIGHTLY}": content("2.12.0a0\n"),
            f"/repos/pytorch/pytorch/contents/{TRITON}?ref={NIGHTLY}": content(f"{NEW_PIN}\n"),
        }
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with contextlib.suppress(ConnectionError):  # of a client that did not wait
                    self.answer()

            def answer(self) -> None:
                api.requests.append((self.path, dict(self.headers)))
                found = api.answers.get(self.path, (404, {}, b'{"message": "Not Found"}'))
                answer = found.pop(0) if isinstance(found, list) else found
                code, headers, body = answer() if callable(answer) else answer
                self.send_response(code, api.reason)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if api.trickle:
                    for byte in b" " * 1000:
                        time.sleep(0.05)
                        self.wfile.write(bytes([byte]))
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    api = Api()
    monkeypatch.setenv("BUILD_PYTORCH_GITHUB_API", api.base)
    for name in ("GITHUB_TOKEN", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield api
    api.server.shutdown()
    api.server.server_close()


def bump(project: Project, *argv: str, hash_: str = OTHER) -> subprocess.CompletedProcess[str]:
    """Run bump with a stand-in for the download: nix-prefetch and nix-prefetch-url give a hash."""
    letters = 'case "$*" in *vision*) x=CC;; *audio*) x=DD;; *) x=BB;; esac'
    env = tool(project, "nix-prefetch", f"{letters}\necho {hash_} | sed s/BB/$x/")
    tool(project, "nix-prefetch-url", f"echo {hash_}")
    return project.run("invoke", "bump", *argv, env=env)


# --- what GitHub answers ---


def asked(**options: Any) -> bool:
    return GitHub(**{"backoff": 0.01, **options}).has_tag("pytorch", "pytorch", "v2.11.0")


RELEASES = "/repos/pytorch/pytorch/releases?per_page=50"
TAG = "/repos/pytorch/pytorch/git/ref/tags/v2.11.0"


def test_a_tag_is_there_or_it_is_not_and_failures_are_tried_again(api: Api) -> None:
    good = api.answers.pop(TAG)
    assert not asked()
    api.answers[TAG] = [(500, {}, b""), (503, {}, b""), good]  # type: ignore[list-item]
    assert asked()
    assert len(api.requests) == 4


LIMIT = {"X-RateLimit-Remaining": "0"}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((503, {"Retry-After": "999999"}, b""), "answered 503 Service Unavailable"),
        ((599, {}, b""), rf"answered 599: {re.escape(TAG)}$"),
        ((403, {}, b"{}"), "answered 403 Forbidden"),
        ((200, {"Content-Length": "99"}, b"{}"), "sent only a part of its answer; try again"),
        (
            (403, {**LIMIT, "X-RateLimit-Limit": "60", "X-RateLimit-Reset": "1790000000"}, b"{}"),
            r"60 requests an hour.*until \d\d:\d\d UTC.*GITHUB_TOKEN",
        ),
        *(
            ((429, {**LIMIT, **headers}, b""), "its limit of requests an hour; that is used up")
            for headers in (
                {"X-RateLimit-Reset": "9" * 15, "X-RateLimit-Limit": "\x1b[31m"},
                {"X-RateLimit-Reset": "\u00b2"},
                {"Retry-After": "999999"},
            )
        ),
        *(
            ((200, {}, body), "gave an unexpected answer")
            for body in (b"<html>", b"[]", b"{}", rb'{"ref": "\ud800"}')
        ),
        pytest.param(
            (200, {}, b" " * (17 << 20)), "gave an unexpected answer", marks=pytest.mark.slow
        ),
    ],
)
def test_an_answer_that_is_no_tag_is_one_line(api: Api, answer: Answer, says: str) -> None:
    api.reason = "I'm \x1b]0;title\x07 \x9b31m"
    api.answers[TAG] = answer
    start = time.monotonic()
    with pytest.raises(ToolError, match=says) as caught:
        asked()
    assert str(caught.value).isprintable()
    assert "title" not in str(caught.value)
    assert len(api.requests) == (4 if answer[0] == 503 else 1)
    assert time.monotonic() - start < 300  # whatever Retry-After says


@pytest.mark.parametrize("trickle", [False, True])
def test_a_hang_and_an_answer_in_small_parts_end(api: Api, *, trickle: bool) -> None:
    is_over = threading.Event()

    def hang() -> Answer:
        is_over.wait(600)
        return ok({})

    api.trickle = trickle
    if not trickle:
        api.answers[TAG] = hang
    start = time.monotonic()
    with pytest.raises(ToolError, match=r"gave no answer in"):
        asked(seconds=0.3)
    is_over.set()
    assert time.monotonic() - start < 300


def test_no_server_is_one_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    del api
    monkeypatch.setenv("BUILD_PYTORCH_GITHUB_API", "http://127.0.0.1:9")
    with pytest.raises(ToolError) as caught:
        asked()
    assert str(caught.value) == (
        "http://127.0.0.1:9 cannot be reached; this command needs a network connection"
    )


def offer(folder: Path, rev: str, versions: str) -> None:
    """Offer a nixpkgs with some versions as the tarball of a revision."""
    (folder / "tree").mkdir()
    (folder / "tree/default.nix").write_text(f"_: {{ {versions} }}")
    archive = folder / f"NixOS/nixpkgs/archive/{rev}.tar.gz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "tree", arcname=f"nixpkgs-{rev}")


PYTHON = """python3.pythonVersion = "3.13"; python313.pythonVersion = "3.13";
python313Packages.x = 1; python3Packages.torch.version = "2.9.1";"""
CUDA_13_0 = 'cudaPackages_13.cudaMajorMinorVersion = "13.0";'
CUDA_13_2 = 'cudaPackages_13_2.cudaMajorMinorVersion = "13.2";'
OTHER_CUDA = CUDA_13_2.replace('"13.2"', '"13.1"')
CUDA_PIN = "2017d6d515f8a7b289fe06d3a880a7ec588c3900"
"""The revision that is known to have CUDA 13.1."""


def test_the_token_is_sent_and_never_shown(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret-token")
    api.answers[TAG] = (403, {}, b"")
    with pytest.raises(ToolError, match="answered 403 Forbidden") as caught:
        asked()
    assert api.requests[0][1]["Authorization"] == "Bearer secret-token"
    assert "secret-token" not in str(caught.value)


# --- the changed values ---


def changed_lines(text: str, move: ReleaseMove) -> list[str]:
    """The lines that a move over a release adds to a matrix, without their comments."""
    rows = difflib.ndiff(text.splitlines(), move.text().splitlines())
    return [row[2:].split("   #")[0].rstrip() for row in rows if row.startswith("+ ")]


def moved(text: str, name: str, **wanted: Any) -> Matrix:
    return matrix_reader.parse(
        ReleaseMove(matrix_reader.parse(text), name, new_versions(**wanted)).text()
    )


def test_a_new_pytorch_changes_every_place_that_follows(matrix: Matrix) -> None:
    move = ReleaseMove(matrix, "cuda13_0", NewVersions(torch="2.11.0"))
    assert changed_lines(ONE, move) == [
        *('version = "2.11.0"', 'rev = "v2.11.0"', 'hash = ""', 'hash_of = ""'),
        *('version = "0.26.0"', 'rev = "v0.26.0"', 'hash = ""', 'hash_of = ""'),
        *('version = "2.11.0"', 'rev = "v2.11.0"', 'hash = ""', 'hash_of = ""'),
    ]
    assert list(move.reasons()) == [
        "PyTorch 2.11.0: torch, companion.torchvision, companion.torchaudio",
    ]


@pytest.mark.parametrize(
    ("wanted", "gpu", "cpu", "cleaned"),
    [
        ({"cuda": "13.1"}, "python313-cuda13_1", "python313-cpu", "python313-cuda13_1"),
        ({"python": "3.12"}, "python312-cuda13_0", "python312-cpu", "python312-cuda13_0"),
    ],
)
def test_names_follow_the_versions(
    wanted: dict[str, str], gpu: str, cpu: str, cleaned: str
) -> None:
    release = moved(ONE, "cuda13_0", **wanted).releases["cuda13_0"]
    assert (release.names.gpu, release.names.cpu) == (gpu, cpu)
    (kept,) = {entry.file for entry in release.cleanup if entry.action == "keep"}
    assert kept.startswith(f"pytorch-{cleaned}-")


def test_a_second_move_has_nothing_to_do() -> None:
    for wanted in ({"torch": "2.11.0"}, {"nixpkgs": NEW_PIN}, {"cuda": "13.1"}):
        new = moved(ONE, "cuda13_0", **wanted)
        assert ReleaseMove(new, "cuda13_0", new_versions(**wanted)).values == {}


# --- the command ---


@needs_nix
def test_everything_is_written(api: Api, project: Project) -> None:
    assert api.base
    project.commit()
    done = bump(project, "--torch", "2.11.0")
    assert done.returncode == 0, done.stdout + done.stderr
    release = matrix_reader.load(project.root).releases["cuda13_0"]
    assert {(s.hash, s.hash_of) for s in release.sources.values()} == {
        (OTHER, "v2.11.0"),
        (OTHER.replace("BB", "CC", 1), "v0.26.0"),
        (OTHER.replace("BB", "DD", 1), "v2.11.0"),
    }
    recipe = project.recipe("cuda13_0-sm90-avx2").read_text()
    for part in ('pname = "pytorch211-', OTHER, "PYTORCH_BUILD_VERSION=2.11.0"):
        assert part in recipe
    assert "Written; `git diff` shows it." in done.stdout
    before, asked_before = project.snapshot(), len(api.requests)
    again = bump(project, "--torch", "2.11.0")
    assert again.returncode == 0
    assert again.stdout.startswith("nothing to do: release.cuda13_0 has ")
    assert (project.snapshot(), len(api.requests)) == (before, asked_before)


@pytest.mark.slow
@needs_nix
def test_a_new_cuda_renames_the_recipes(api: Api, project: Project, nixpkgs: Path) -> None:
    """The pin is one that is known to have it: GitHub's API is not asked, and Nix not either."""
    offer(nixpkgs, CUDA_PIN, "")
    done = project.invoke("bump", "--cuda", "13.1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert api.requests == []
    release = matrix_reader.load(project.root).releases["cuda13_0"]
    assert release.nixpkgs.pin == "cuda13_1"
    assert PIN in release.nixpkgs.retired
    assert not list(project.pkgs.glob("*cuda13_0*"))
    assert len(list(project.pkgs.glob("*cuda13_1*"))) == 40
    assert project.invoke("all", "--check").returncode == 0


def edited_by_hand(project: Project) -> None:
    recipe = project.recipe("cpu-avx2")
    recipe.write_text(recipe.read_text().replace("MAX_JOBS=32", "MAX_JOBS=8"))


def template_that_breaks(project: Project) -> None:
    project.edit("templates/gpu.nix.j2", "  cudaSupport = true;\n", "  cudaSupport = false;\n")


@needs_nix
@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (edited_by_hand, "1 file edited by hand: nothing was written"),
        pytest.param(
            template_that_breaks,
            "do not pass verification: nothing was written",
            marks=pytest.mark.slow,
        ),
        (None, "http://127.0.0.1:9/pytorch/pytorch does not answer"),
    ],
)
@pytest.mark.usefixtures("api")
def test_what_cannot_be_written_leaves_the_tree_as_it_was(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[Project], None] | None,
    says: str,
) -> None:
    if break_it:
        break_it(project)
    before = project.snapshot()
    if break_it:
        done = bump(project, "--torch", "2.11.0")
    else:
        monkeypatch.setenv("BUILD_PYTORCH_GITHUB", "http://127.0.0.1:9")
        done = project.invoke("bump", "--torch", "2.11.0")
    assert done.returncode == (1 if break_it else 2), done.stdout + done.stderr
    assert says in (done.stdout if break_it else error_line(done))
    assert project.snapshot() == before


def test_a_recipe_that_was_edited_by_hand_is_not_deleted_for_its_new_name(
    project: Project,
) -> None:
    edited_by_hand(project)
    old = matrix_reader.load(project.root)
    planned = plan_files(old, moved(ONE, "cuda13_0", python="3.12"))
    (refused,) = (change for change in planned if change.action is Action.REFUSED)
    assert refused.path.endswith("/pytorch-python313-cpu-avx2.nix")
    assert refused.reason == "edited by hand, and has another name"
    assert sum(change.action is Action.DELETE for change in planned) == 3 * 44 - 1


# --- what GitHub and the pin have ---


def test_what_github_does_not_have_is_refused(api: Api, matrix: Matrix) -> None:
    release = matrix.releases["cuda13_0"]

    def checked(*, pre: bool = False, **wanted: str) -> list[str]:
        return list(check_upstream(release, new_versions(**wanted), pre=pre))

    assert checked(torch="2.11.0") == []
    assert checked(nixpkgs=NEW_PIN) == []
    with pytest.raises(BuildPytorchError, match="NixOS/nixpkgs has no commit 222"):
        checked(nixpkgs="2" * 40)
    api.answers[RELEASES] = ok([{"tag_name": "v2.11.0", "prerelease": True}])
    with pytest.raises(
        BuildPytorchError, match=r"GitHub marks v2\.11\.0 as a pre-release; --pre acc"
    ):
        checked(torch="2.11.0")
    assert checked(torch="2.11.0", pre=True) == []
    del api.answers[TAG]
    with pytest.raises(BuildPytorchError, match=r"pytorch/pytorch has no tag v2\.11\.0"):
        checked(torch="2.11.0")


def asked_pin(matrix: Matrix, assume: str = "", **wanted: str) -> ReleaseMove:
    return asked_move(ReleaseMove(matrix, "cuda13_0", new_versions(**wanted)), assume, 5)


UNREADABLE = "pin.early_2026, CUDA 13.2: not known; "


@needs_nix
@pytest.mark.parametrize(
    ("wanted", "versions", "says"),
    [
        ({"cuda": "13.2"}, PYTHON + OTHER_CUDA, "has no CUDA 13.2: 13.1; --nixpkgs REV moves"),
        ({"cuda": "13.2"}, PYTHON, "has no CUDA 13.2: none;"),
        ({"cuda": "13.2"}, "syntax error", UNREADABLE),
        ({"cuda": "13.2"}, "python3.pythonVersion = 3;" + CUDA_13_2, UNREADABLE),
        ({"cuda": "13.2"}, PYTHON + CUDA_13_2, ""),
        ({"nixpkgs": NEW_PIN}, PYTHON, "has no CUDA 13.0: none;"),
        ({"nixpkgs": NEW_PIN}, PYTHON.replace("13", "14") + CUDA_13_0, "no Python 3.13: 3.14;"),
    ],
)
def test_a_version_that_the_pin_does_not_have_is_refused(
    matrix: Matrix, nixpkgs: Path, wanted: dict[str, str], versions: str, says: str
) -> None:
    offer(nixpkgs, wanted.get("nixpkgs", PIN), versions)
    if not says:
        new = matrix_reader.parse(asked_pin(matrix, **wanted).text())
        assert new.releases["cuda13_0"].cuda
        assert new.pins["early_2026"].cuda["cudaPackages_13_2"] == "13.2"
        return
    with pytest.raises(BuildPytorchError, match=re.escape(says)) as caught:
        asked_pin(matrix, **wanted)
    assert "\n" not in str(caught.value)


def test_a_pin_on_which_torch_is_broken_is_refused() -> None:
    """For another reason than a CUDA that it does not support, which recipes forgive."""
    reason = "Magma cudaPackages does not match cudaPackages"
    place = ("pin", "early_2026", "facts", "cuda_sets", "cudaPackages_13", "broken")
    forgiven = ["Unsupported CUDA version", reason]
    text = matrix_editor.with_values(written_out(WHOLE), {place: forgiven})
    with pytest.raises(
        BuildPytorchError, match=f"broken on cudaPackages_13 of .*: {reason}; --nix"
    ):
        ReleaseMove(matrix_reader.parse(text), "cuda13_0", NewVersions(torch="2.11.0"))
    assert ReleaseMove(matrix_reader.parse(WHOLE), "cuda13_0", NewVersions(torch="2.11.0")).values


def test_a_pin_may_be_assumed_to_contain_what_another_one_does(matrix: Matrix) -> None:
    move = asked_pin(matrix, "february_2026", nixpkgs=NEW_PIN)
    pin = matrix_reader.parse(move.text()).pins["early_2026"]
    assert (pin.rev, pin.torch, pin.has) == (NEW_PIN, "2.9.1", ("magma-clock-rate",))
    assert pin.facts
    assert (pin.facts.of, pin.facts.unconfirmed) == (NEW_PIN, "all: copied from pin.february_2026")
    (todo,) = (each for each in move.todo if each.startswith("pin.early_2026, not confirmed: "))
    assert todo.endswith(
        "from pin.february_2026; `invoke prefetch --only nixpkgs` asks nixpkgs itself"
    )
    with pytest.raises(BuildPytorchError, match='no pin "febuary_2026" with facts; did you mean'):
        asked_pin(matrix, "febuary_2026", nixpkgs=NEW_PIN)
    with pytest.raises(BuildPytorchError, match=r"has no CUDA 13\.2: 12\.8, 12\.9, 13\.0;"):
        asked_pin(matrix, "february_2026", nixpkgs=NEW_PIN, cuda="13.2")
    with pytest.raises(BuildPytorchError, match=r"it is known what pin\.early_2026 contains"):
        asked_pin(matrix, "february_2026", cuda="13.2")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "nothing to do; give --torch VERSION"),
        (["--torch", "2.12.0rc1"], "--pre accepts it"),
        (["--torch", "../../x"], "allowed: a version such as 2.10.0"),
        (
            ["--nixpkgs", "main"],
            'found "main"; allowed: 40 hex digits of a revision, key of a pin, or',
        ),
        (["--cuda", "12.8"], "with CUDA 12.8; allowed: CUDA 12.9 or newer"),
        (["--torch", "2.11.0", "--release", "cuda13"], 'did you mean "cuda13_0"?'),
        (["--torch", "2.9.1", "--as", "cuda12_8"], 'release "cuda12_8" exists already'),
        (["--torch", "2.9.1", "--as", "a.b"], 'found "a.b"; allowed: a-z, 0-9 and _'),
        (["--python", "3"], "--python: found"),
        (["--as", "other"], "nothing to do; give --torch VERSION"),
    ],
)
def test_an_impossible_target_is_a_line_for_each_error(argv: list[str], says: str) -> None:
    release = [] if "--release" in argv else ["--release", "cuda13_0"]
    done = Project(PROJECT).invoke("bump", *release, *argv, "--dry-run")
    assert done.returncode == 2
    assert says in done.stderr
    assert all(line.startswith("error: ") for line in done.stderr.splitlines())


# --- beside the old release ---


@pytest.mark.slow
@needs_nix
def test_a_release_with_the_torch_of_its_pin_needs_a_pin_and_no_github(whole: Project) -> None:
    """2.9.1 on CUDA 12.8 is in a revision that is known with its hash; GitHub is not asked."""
    before = (whole.root / "matrix.toml").read_text()
    argv = ["--release", "cuda12_8", "--torch", "2.9.1", "--as", "cuda12_8_t29"]
    env = {"BUILD_PYTORCH_GITHUB_API": "http://127.0.0.1:9"}
    done = whole.run("invoke", "bump", *argv, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (whole.root / "matrix.toml").read_text()
    assert [line for line in before.splitlines() if line not in text.splitlines()] == []
    new = matrix_reader.parse(text)
    old, beside = new.releases["cuda12_8"], new.releases["cuda12_8_t29"]
    assert (old.torch.version, beside.torch.version) == ("2.8.0", "2.9.1")
    pin = new.pins[beside.nixpkgs.pin]
    assert (pin.torch, pin.cuda["cudaPackages_12_8"]) == ("2.9.1", "12.8")
    ids = [variant.short_id for variant in new.of_release("cuda12_8_t29")]
    assert ids == [variant.short_id for variant in new.of_release("cuda12_8")]
    recipe = new.of_release("cuda12_8_t29")[0].path
    assert pin.rev in (whole.root / recipe).read_text()
    assert whole.invoke("all", "--check").returncode == 0


# --- pins that several releases use ---

_BEFORE, _NIGHTLY, _REST = WHOLE.partition("[release.nightly]")
SHARED = _BEFORE + _NIGHTLY + _REST.replace('"february_2026"', '"early_2026"', 1)
"""The matrix with a nightly on the pin of the main release."""


def test_a_release_with_a_pin_of_its_own_moves_it_where_it_is() -> None:
    old, new = matrix_reader.parse(WHOLE), moved(WHOLE, "cuda13_0", nixpkgs=NEW_PIN)
    pin = new.pins["early_2026"]
    assert (pin.rev, pin.sha256) == (NEW_PIN, "")
    assert new.releases["cuda13_0"].nixpkgs.retired[-1] == PIN
    assert new.releases["nightly"] == old.releases["nightly"]
    assert new.pins[new.releases["nightly"].nixpkgs.pin].rev not in {NEW_PIN, PIN}


@pytest.mark.parametrize(
    ("name", "wanted", "pin"),
    [
        ("cuda13_0", NewVersions(nixpkgs=NEW_PIN), "cuda13_0"),
        ("cuda13_0", NewVersions(nixpkgs=NEW_PIN, cuda="13.1"), "cuda13_0"),
        ("cuda13_0", NewVersions(nixpkgs="february_2026"), "february_2026"),
        ("cuda13_0", NewVersions(cuda="13.1"), "cuda13_1"),
        ("cuda13_0", NewVersions(cuda="13.2"), "early_2026"),
        ("nightly", NewVersions(python="3.12"), "early_2026"),
        ("cuda12_8", NewVersions(torch="2.9.1"), "february_2026"),
        ("cuda12_8", NewVersions(torch="2.11.0"), "autumn_2025"),
    ],
)
def test_a_moved_release_leaves_the_others_as_they_are(
    name: str, wanted: NewVersions, pin: str
) -> None:
    old = matrix_reader.parse(SHARED)
    move = ReleaseMove(old, name, wanted)
    new = matrix_reader.parse(move.text())
    moved = new.releases[name]
    assert moved.nixpkgs.pin == pin
    assert wanted.torch in {None, moved.torch.version}
    assert wanted.cuda in {None, moved.cuda.version if moved.cuda else ""}
    assert wanted.python in {None, moved.python.version}
    assert [r for n, r in new.releases.items() if n != name] == [
        r for n, r in old.releases.items() if n != name
    ]
    assert {k: new.pins[k].rev for k in old.pins} == {k: p.rev for k, p in old.pins.items()}
    assert all(": " in reason for reason in move.reasons())


def test_a_release_moves_over_itself_as_beside_itself() -> None:
    wanted = NewVersions(torch="2.9.1", python="3.12")
    matrix = matrix_reader.parse(WHOLE)
    over = matrix_reader.parse(ReleaseMove(matrix, "cuda12_8", wanted).text())
    move = ReleaseMove(matrix, "cuda12_8", wanted, beside="other")
    beside = matrix_reader.parse(move.text())
    ours, theirs = over.releases["cuda12_8"], beside.releases["other"]
    for field in ("torch", "companion", "cuda", "python", "names", "group", "build"):
        assert getattr(ours, field) == getattr(theirs, field)
    assert over.pins[ours.nixpkgs.pin] == beside.pins[theirs.nixpkgs.pin]


# --- outdated ---


@pytest.mark.parametrize("is_newer", [True, False])
def test_outdated_lists_what_is_newer(api: Api, project: Project, *, is_newer: bool) -> None:
    if not is_newer:
        api.answers[RELEASES] = ok([{"tag_name": "v2.10.0", "prerelease": False}])
        api.answers["/repos/NixOS/nixpkgs/commits/nixos-unstable"] = commit(PIN, "2026-11-01")
    done = project.invoke("outdated", "--check")
    assert done.returncode == is_newer
    for line in (
        ("torch 2.10.0: 2.11.0 is newer", f"{NEW_PIN} is newer (nixos-unstable of 2026-11-01)")
        if is_newer
        else ("torch 2.10.0: is the newest", f"nixpkgs {PIN}: is the newest")
    ):
        assert line in done.stdout
    done = project.invoke("outdated", "--json")
    assert done.returncode == 0
    newer = [row["name"] for row in json.loads(done.stdout) if row["newer"]]
    assert newer == (["torch", "torchvision", "torchaudio", "nixpkgs"] if is_newer else [])


FLOX = "/repos/flox/nixpkgs/commits/"


def test_outdated_names_the_revisions_that_flox_builds(api: Api, project: Project) -> None:
    api.answers[f"{FLOX}stable"] = commit(NEW_PIN, "2026-10-30")
    done = project.invoke("outdated", "--json")
    (row,) = (row for row in json.loads(done.stdout) if row.get("release") == "flox/nixpkgs")
    assert (row["name"], row["newest"], row["newer"]) == ("stable", NEW_PIN, False)
    assert f"flox/nixpkgs  stable: {NEW_PIN} of 2026-10-30" in project.invoke("outdated").stdout


def test_bump_takes_the_revision_of_a_branch_of_flox(api: Api, project: Project) -> None:
    options = ("--nixpkgs", "lts", "--assume", "early_2026", "--dry-run")
    done = bump(project, *options)
    assert (done.returncode, done.stderr) == (2, "error: flox/nixpkgs has no branch lts\n")
    api.answers[f"{FLOX}lts"] = commit(NEW_PIN, "2026-10-30")
    done = bump(project, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"nixpkgs {NEW_PIN}: pin.early_2026" in done.stdout
