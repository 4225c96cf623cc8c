"""Build hooks are run: what a run shows, what it cannot do, and what CMake and nvcc make of it."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, needs_nix, write_recipes
from mutations import BY_HAND, SPARK
from one_release import written_out
from test_mutations import Checkout

from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.verify import hooks, recipe_facts, verification
from build_pytorch.verify.context import Context
from build_pytorch.verify.hooks import Facts, HookJob

TEXT = written_out(ONE)
JOBS = "max_jobs = 32"
CUDA = Path("/usr/local/cuda-13.0")

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")
needs_cuda = pytest.mark.skipif(not CUDA.is_dir(), reason="CUDA 13.0 is not installed")


def run(pre_configure: str = "", source: dict[str, str] | None = None, **texts: str) -> Facts:
    """Run hooks on a machine of four cores."""
    job = HookJob(
        {"preConfigure": pre_configure, **texts},
        {"GIVEN": "a 'quoted' value"},
        source=hooks.SOURCE if source is None else source,
    )
    return hooks.run_all([job])[0]


# --- what a run shows ---


def test_a_run_shows_exported_variables_and_changed_files() -> None:
    ran = run(
        'export A=1; B=2; export GIVEN="$GIVEN too"\nmkdir -p /build/x; ln -s /nix/y /build/x/z\n'
        "echo text > new.txt",
        postPatch="rm setup.py",
        preBuild="export MAX_JOBS=$NIX_BUILD_CORES; export MACHINE=$(nproc)",
    )
    assert not ran["hook.end"]
    wanted = {"A": "1", "B": None, "GIVEN": "a 'quoted' value too", "MACHINE": "48"}
    assert {name: ran.get(f"env.{name}") for name in wanted} == wanted
    assert ran["jobs.192 of 256 cores"] == "MAX_JOBS=192 NIX_BUILD_CORES=192"
    assert sum(name.startswith("jobs.") for name in ran) == len(hooks.MACHINES)
    assert {name: ran[name] for name in ran if name.startswith("file.")} == {
        "file.setup.py": "(removed)",
        "file.new.txt": "text",
        "file./build/x/z": "-> /nix/y",
    }


@pytest.mark.parametrize("store", ["/nix/store", "/srv/a-store"])
def test_programs_of_a_store_are_stand_ins(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIX_STORE_DIR", store)
    python = f"{store}/{'1a' * 16}-python3-3.13/bin/python3.13"
    assert run(preBuild=f"{python} setup.py build && export DONE=1")["env.DONE"] == "1"


@pytest.mark.parametrize(
    "text", ["exit 0", "false", "missing-program", "x=$(false)", "false | true", "("]
)
def test_hooks_that_end_early_are_incomplete(text: str) -> None:
    ran = run(f"{text}\nexport LATE=1")
    assert ran["hook.end"]
    assert not [name for name in ran if name.startswith("env.")]


def test_return_ends_one_hook_only_as_in_nixpkgs() -> None:
    ran = run("return 0\nexport A=1", preBuild="export B=1")
    assert not ran["hook.end"]
    assert "env.A" not in ran
    assert ran["env.B"] == "1"


def test_substitutions_fail_where_their_text_is_missing() -> None:
    substitute = "substituteInPlace cmake/Dependencies.cmake --replace-fail"
    assert not run(postPatch=f"{substitute} NO_DEFAULT_PATH X")["hook.end"]
    missing = run(postPatch=f"{substitute} 'no such text' X")
    assert missing["hook.end"]
    assert "no such text is not in cmake/Dependencies.cmake" in missing["hook.output"]


# --- what a run cannot do ---


def test_a_loop_without_an_end_is_stopped_and_the_other_runs_are_not() -> None:
    jobs = [
        HookJob({"preConfigure": text})
        for text in ("export A=1", "while :; do :; done", "export A=1")
    ]
    assert [bool(ran["hook.end"]) for ran in hooks.run_all(jobs)] == [False, True, False]


def test_hooks_do_not_see_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    ran = run("export SEEN=${GITHUB_TOKEN:-nothing}")
    assert ran["env.SEEN"] == "nothing"
    assert "env.GITHUB_TOKEN" not in ran


# --- the matrix ---


@needs_nix
def test_a_value_of_another_variant_is_not_hidden_by_sharing(
    matrix: Matrix, tmp_path: Path
) -> None:
    """Each of two recipes has the other's flags: the same text but for the values."""
    pair = [v for v in matrix.variants if v.id in {"cpu-avx512", "cpu-avx512vnni"}]
    for variant, other in zip(pair, reversed(pair), strict=True):
        text, flags = (PROJECT / variant.path).read_text(), " ".join(other.cpu.flags)
        path = tmp_path / variant.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            text.replace('${lib.concatStringsSep " " cpuFlags} $CXXFLAGS', f"{flags} $CXXFLAGS")
        )
    only = ["hook-environment"]
    found = verification.verify(matrix, tmp_path, variants=pair, only=only).findings
    assert {finding.path for finding in found} == {variant.path for variant in pair}


@pytest.fixture
def rendered(tmp_path: Path) -> Callable[[str], tuple[Matrix, Path]]:
    """Write the recipes of a changed matrix below a new root."""

    def render(text: str) -> tuple[Matrix, Path]:
        assert text != TEXT
        matrix = matrix_reader.parse(text)
        write_recipes(tmp_path, matrix)
        return matrix, tmp_path

    return render


CATEGORIES = ("text", "evaluation", "hooks")


def findings(matrix: Matrix, root: Path, *variants: str) -> list[str]:
    chosen = [v for v in matrix.variants if v.id in variants]
    result = verification.verify(matrix, root, variants=chosen, only=CATEGORIES)
    return [f"{finding.check}: {finding.found}" for finding in result.findings]


@needs_nix
@pytest.mark.parametrize(
    ("old", "new", "variant"),
    [
        (JOBS, f'{JOBS}\ncache = "/var/x"', "sm90-avx2"),
        (JOBS, f"{JOBS}\nrequire_builder_feature = true", "cpu-avx512bf16"),
        ("-compress-mode=size", "-compress-mode=balance", "sm90-avx2"),
        ('when.gpu = ["sm103", "sm121"]', 'when.gpu = ["sm103"]', "sm121-armv9"),
        ('when.torch_source = "github"', 'when.torch_source = "nixpkgs"', "sm90-avx2"),
        ('until.pin_has = ["cccl-headers"]', 'until.cuda = ">=13.0"', "sm103-avx512"),
        (JOBS, "max_jobs = 6", "cpu-avx512bf16"),
    ],
)
def test_options_of_the_matrix_change_recipes_and_what_checks_expect(
    rendered: Callable[[str], tuple[Matrix, Path]], old: str, new: str, variant: str
) -> None:
    matrix, root = rendered(TEXT.replace(old, new))
    assert findings(matrix, root, variant) == []
    # The committed recipes are those of the other value.
    shutil.rmtree(root / ".flox")
    shutil.copytree(PROJECT / ".flox", root / ".flox")
    assert findings(matrix, root, variant) != []


@needs_nix
def test_thor_libraries_need_no_magma_patch(
    rendered: Callable[[str], tuple[Matrix, Path]],
) -> None:
    date = 'date = "before 2026-02-04"'
    assert date in TEXT
    matrix, root = rendered(TEXT.replace(date, f'{date}\nhas = ["magma-clock-rate"]'))
    assert not any(variant.effects.patches for variant in matrix.variants)
    assert findings(matrix, root, "sm110-armv9", "sm90-avx2") == []


def test_the_builder_feature_is_that_of_the_isa() -> None:
    matrix = matrix_reader.parse(TEXT.replace(JOBS, f"{JOBS}\nrequire_builder_feature = true"))
    features = {v.cpu_key: v.builder_features for v in matrix.variants}
    assert features["avx2"] == ("big-parallel", "gccarch-x86-64-v3")
    assert features["armv9"] == ("big-parallel", "gccarch-armv9-a")
    assert {v.builder_features for v in matrix_reader.parse(TEXT).variants} == {("big-parallel",)}


@needs_nix
def test_a_recipe_that_is_edited_by_hand_is_forgiven_what_it_leaves_out_alone(
    tmp_path: Path,
) -> None:
    """All edits in one run: each is one variant of a matrix with as many folders."""
    checkout = Checkout(tmp_path)
    folders = {name: checkout.add(SPARK, edit) for name, (edit, *_) in BY_HAND.items()}
    findings = checkout.verified()
    for name, (_, check, is_forgiven) in BY_HAND.items():
        own = [it for it in findings if it.path.startswith(folders[name]) and it.check == check]
        assert own, name
        assert all(it.severity == "warning" for it in own) == is_forgiven, (name, own)


# --- the changed source, with real programs ---


@functools.cache
def all_hooks() -> dict[str, dict[str, str]]:
    """Evaluate the recipes of four variants and return their hooks by name."""
    ids = {"sm90-avx2", "sm121-armv9", "sm103-avx2", "sm120-avx2"}
    matrix = matrix_reader.parse(ONE)
    chosen = [variant for variant in matrix.variants if variant.id in ids]
    facts = recipe_facts.facts_of(Context(matrix, PROJECT, chosen)).facts
    return {v.id: {n: facts[v.path][f"attr.{n}"] for n in hooks.NAMES} for v in chosen}


def source_of(variant: str, source: dict[str, str] | None = None) -> Facts:
    """Run the hooks of a recipe and return what is left."""
    texts = dict(all_hooks()[variant])
    return run(texts.pop("preConfigure"), source, **texts)


LAYOUTS = {"folder with ..": "{root}/sub/../cmake/Modules", "installed": ""}


def configured(tmp_path: Path, stub: str, layout: str, *, found_before: bool) -> str:
    """Configure a project that finds CUDA through a stub; return CMake's output."""
    source = tmp_path / "source"
    modules = source / "cmake/Modules"
    installed = tmp_path / "prefix/share/cmake"
    for folder in (modules, source / "sub", installed / "Caffe2", installed / "Torch"):
        folder.mkdir(parents=True)
    (modules / "FindCUDAToolkit.cmake").write_text(stub)
    (installed / "Caffe2/FindCUDAToolkit.cmake").write_text(stub)
    # As PyTorch's own: the folder of the installed modules, relative to that of the package.
    (installed / "Torch/TorchConfig.cmake").write_text(
        'list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}/../Caffe2")\n'
        "find_package(CUDAToolkit REQUIRED)\n"
    )
    before = "find_package(CUDAToolkit REQUIRED)\n" if found_before else ""
    path = LAYOUTS[layout].format(root="${CMAKE_CURRENT_SOURCE_DIR}")
    find = f'list(INSERT CMAKE_MODULE_PATH 0 "{path}")\nfind_package(CUDAToolkit REQUIRED)\n'
    if not path:
        find = f'find_package(Torch REQUIRED PATHS "{tmp_path}/prefix")\n'
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES CXX)\n"
        f"{before}{find}"
        'if(TARGET CUDA::cudart)\n  message(STATUS "found ${CUDAToolkit_VERSION_MAJOR}")\nendif()\n'
        'message(STATUS "path ${CMAKE_MODULE_PATH}")\n'
    )
    done = subprocess.run(
        ["cmake", "-S", source, "-B", tmp_path / "build", f"-DCUDAToolkit_ROOT={CUDA}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@needs_nix
@needs_cmake
@needs_cuda
@pytest.mark.parametrize(
    ("layout", "found_before"), [("folder with ..", False), ("installed", True)]
)
def test_cmake_finds_cuda_through_the_stub(tmp_path: Path, layout: str, found_before: bool) -> None:
    stub = source_of("sm90-avx2")[f"file.{hooks.STUB}"]
    assert "found 13" in configured(tmp_path, stub, layout, found_before=found_before)


def cmake_script(tmp_path: Path, text: str, **env: str) -> str:
    (tmp_path / "script.cmake").write_text(text)
    argv = ["cmake", "-P", str(tmp_path / "script.cmake")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    return done.stderr


@needs_nix
@needs_cmake
def test_cmake_finds_cupti_in_the_folders_that_nixpkgs_exports(tmp_path: Path) -> None:
    for file in ("lib/libcupti.so", "include/cupti.h"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    paths = {
        "PATH": str(Path(shutil.which("cmake") or "").parent),
        "CUPTI_LIBRARY_DIR": f"{tmp_path}/lib",
        "CUPTI_INCLUDE_DIR": f"{tmp_path}/include",
    }

    def found(text: str) -> str:
        head = "set(CUPTI_LIB_NAME libcupti.so)\nset(CUDA_SOURCE_DIR /nonexistent)\n"
        tail = '\nmessage("${CUPTI_LIBRARY_PATH} ${CUPTI_INCLUDE_DIR}")\n'
        return cmake_script(tmp_path, head + text + tail, **paths).strip()

    changed = source_of("sm90-avx2")[f"file.{hooks.DEPENDENCIES}"]
    assert found(changed) == f"{tmp_path}/lib/libcupti.so {tmp_path}/include"
    assert "NOTFOUND" in found(hooks.SOURCE[hooks.DEPENDENCIES])


@needs_nix
def test_a_pytorch_whose_cupti_lines_moved_stops_the_build_at_once() -> None:
    other = {**hooks.SOURCE, hooks.DEPENDENCIES: "# CUPTI is found elsewhere\n"}
    ran = source_of("sm90-avx2", other)
    assert ran["hook.end"]
    assert "extras/CUPTI/lib64 is not in cmake/Dependencies.cmake" in ran["hook.output"]


@needs_nix
@needs_cmake
@pytest.mark.parametrize(
    ("variant", "own"), [("sm121-armv9", "121a"), ("sm103-avx2", "103a"), ("sm120-avx2", "120a")]
)
def test_cmake_adds_the_specific_code_of_the_variant(
    tmp_path: Path, variant: str, own: str
) -> None:
    text = source_of(variant).get(f"file.{hooks.CODEGEN}", hooks.SOURCE[hooks.CODEGEN])
    code = own[:-1]

    def added(codes: str) -> set[str]:
        asked = ";".join(f"-gencode;arch=compute_{c},code=sm_{c}" for c in codes.split())
        script = (
            f'set(_existing_arch_flags "{asked}")\nset(_flags "")\n'
            f'foreach(_arch "90a" "100a" "103a" "120a" "121a")\n{text}\nendforeach()\n'
            'message("${_flags}")\n'
        )
        path = str(Path(shutil.which("cmake") or "").parent)
        flags = cmake_script(tmp_path, script, PATH=path)
        return {part.rpartition("sm_")[2].strip() for part in flags.split(";") if "sm_" in part}

    assert added(code) == ({own} if code != "120" else {"120a", "121a"})
    assert added("90") == {"90a"}
    assert added("100") == {"100a", "103a"}, "as before"


@needs_nix
@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_pytorch_with_another_condition_stops_the_build(*, is_guarded: bool) -> None:
    """The guard of pull request 187006 lets no build for 10.3 alone have the code."""
    text = "# rewritten\n"
    if is_guarded:
        guard = '" AND NOT _existing_arch_flags MATCHES ".*compute_121.*")'
        text = hooks.SOURCE[hooks.CODEGEN].replace('.*")', f".*{guard}")
    ran = source_of("sm121-armv9", {**hooks.SOURCE, hooks.CODEGEN: text})
    assert ran["hook.end"]
    assert "build-pytorch: cmake/Codegen.cmake has no condition for 121a\n" in ran["hook.output"]
