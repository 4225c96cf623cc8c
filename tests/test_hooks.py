"""Build hooks are run: what a run shows, what it cannot do, and what CMake and nvcc make of it."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, needs_nix, write_recipes
from mutations import BY_HAND, SPARK
from one_release import written_out
from test_mutations import Checkout

from build_pytorch.matrix import matrix_reader
from build_pytorch.verify import hooks, recipe_facts, verification
from build_pytorch.verify.check import Context
from build_pytorch.verify.hooks import Facts, HookRun

TEXT = written_out(ONE)
CUDA = Path("/usr/local/cuda-13.0")

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")
needs_cuda = pytest.mark.skipif(not CUDA.is_dir(), reason="CUDA 13.0 is not installed")


def run(pre_configure: str = "", post_patch: str = "", pre_build: str = "") -> Facts:
    """Run hooks with a quoted value in a variable."""
    return hooks.run_all([HookRun((post_patch, pre_configure, pre_build), "a 'quoted' value")])[0]


# --- what a run shows ---


def test_a_run_shows_exported_variables_and_changed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")  # hooks do not see the environment
    ran = run(
        'export A=1; B=2; export PYTORCH_BUILD_VERSION="$PYTORCH_BUILD_VERSION too"\n'
        "export SEEN=${GITHUB_TOKEN:-nothing}\n"
        "mkdir -p /build/x; ln -s /nix/y /build/x/z\n"
        "echo text > new.txt",
        post_patch="rm setup.py",
        pre_build="export MAX_JOBS=$NIX_BUILD_CORES; export MACHINE=$(nproc)",
    )
    assert not ran["hook.end"]
    wanted = {"A": "1", "B": None, "PYTORCH_BUILD_VERSION": "a 'quoted' value too", "MACHINE": "48"}
    wanted |= {"SEEN": "nothing", "GITHUB_TOKEN": None}
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
    assert run(pre_build=f"{python} setup.py build && export DONE=1")["env.DONE"] == "1"


def test_hooks_that_end_early_or_never_are_incomplete_and_the_other_runs_are_not() -> None:
    """A loop without an end is stopped; `return` ends one hook alone, as in nixpkgs."""
    texts = ("exit 0", "false", "missing-program", "x=$(false)", "false | true", "(")
    early = [HookRun(("", f"{text}\nexport A=1", "")) for text in (*texts, "while :; do :; done")]
    *incomplete, ran = hooks.run_all([*early, HookRun(("", "return 0\nexport A=1", "export B=1"))])
    for it in incomplete:
        assert it["hook.end"]
        assert not [name for name in it if name.startswith("env.")]
    assert (ran["hook.end"], ran.get("env.A"), ran["env.B"]) == ("", None, "1")


# --- the matrix ---


JOBS = "max_jobs = 32"
DATE = 'date = "before 2026-02-04"'


@needs_nix
@pytest.mark.parametrize(
    ("old", "new", "variant"),
    [
        (JOBS, f'{JOBS}\ncache = "/var/x"', "sm90-avx2"),
        (JOBS, f"{JOBS}\nrequire_builder_feature = true", "cpu-avx512bf16"),
        ("-compress-mode=size", "-compress-mode=balance", "sm90-avx2"),
        ('gpu = ["sm103", "sm121"]', 'gpu = ["sm103"]', "sm121-armv9"),
        ('torch_source = "github"', 'torch_source = "nixpkgs"', "sm90-avx2"),
        ('pin_has = ["cccl-headers"]', 'cuda = ">=13.0"', "sm103-avx512"),
        (JOBS, "max_jobs = 6", "cpu-avx512bf16"),
        # The MAGMA of the pin needs no patch, also where it is compiled for Thor.
        (DATE, f'{DATE}\nhas = ["magma-clock-rate"]', "sm110-armv9"),
        (DATE, f'{DATE}\nhas = ["magma-clock-rate"]', "sm90-avx2"),
    ],
)
def test_options_of_the_matrix_change_recipes_and_what_checks_expect(
    tmp_path: Path, old: str, new: str, variant: str
) -> None:
    assert old in TEXT
    matrix = matrix_reader.parse(TEXT.replace(old, new))
    write_recipes(tmp_path, matrix)

    def findings() -> list[str]:
        only = ["text", "evaluation", "hooks"]
        chosen = [v for v in matrix.variants if v.id == variant]
        result = verification.verify(matrix, tmp_path, variants=chosen, only=only)
        return [f"{finding.check}: {finding.found}" for finding in result.findings]

    assert findings() == []
    # The committed recipes are those of the other value.
    shutil.rmtree(tmp_path / ".flox")
    shutil.copytree(PROJECT / ".flox", tmp_path / ".flox")
    assert findings() != []


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
def all_hooks() -> dict[str, tuple[str, ...]]:
    """Evaluate the recipes of four variants and return their hooks."""
    ids = {"sm90-avx2", "sm121-armv9", "sm103-avx2", "sm120-avx2"}
    matrix = matrix_reader.parse(ONE)
    chosen = [variant for variant in matrix.variants if variant.id in ids]
    facts = recipe_facts.facts_of(Context(matrix, PROJECT, chosen)).facts
    return {v.id: tuple(facts[v.path][f"attr.{n}"] for n in hooks.NAMES) for v in chosen}


def source_of(variant: str, *changed: tuple[str, str]) -> Facts:
    """Run the hooks of a recipe, on a source with other texts, and return what is left."""
    return hooks.run_all([HookRun(all_hooks()[variant], changed=changed)])[0]


@needs_nix
@needs_cmake
@needs_cuda
@pytest.mark.parametrize("is_installed", [False, True])
def test_cmake_finds_cuda_through_the_stub(tmp_path: Path, *, is_installed: bool) -> None:
    """In the source, by a folder with `..`, and installed, where CUDA was found before."""
    stub = source_of("sm90-avx2")[f"file.{hooks.STUB}"]
    source, installed = tmp_path / "source", tmp_path / "prefix/share/cmake"
    for folder in (source / "cmake/Modules", installed / "Caffe2"):
        folder.mkdir(parents=True)
        (folder / "FindCUDAToolkit.cmake").write_text(stub)
    (source / "sub").mkdir()
    (installed / "Torch").mkdir()
    # As PyTorch's own: the folder of the installed modules, relative to that of the package.
    (installed / "Torch/TorchConfig.cmake").write_text(
        'list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}/../Caffe2")\n'
        "find_package(CUDAToolkit REQUIRED)\n"
    )
    find = "find_package(CUDAToolkit REQUIRED)\n"
    folder_ = (
        'list(INSERT CMAKE_MODULE_PATH 0 "${CMAKE_CURRENT_SOURCE_DIR}/sub/../cmake/Modules")\n'
    )
    torch = f'find_package(Torch REQUIRED PATHS "{tmp_path}/prefix")\n'
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES CXX)\n"
        f"{find + torch if is_installed else folder_ + find}"
        'if(TARGET CUDA::cudart)\n  message(STATUS "found ${CUDAToolkit_VERSION_MAJOR}")\nendif()\n'
    )
    argv = ["cmake", "-S", str(source), "-B", f"{tmp_path}/build", f"-DCUDAToolkit_ROOT={CUDA}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "found 13" in done.stdout, done.stderr


def cmake_script(tmp_path: Path, text: str, **env: str) -> str:
    (tmp_path / "script.cmake").write_text(text)
    argv = [shutil.which("cmake") or "", "-P", str(tmp_path / "script.cmake")]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stderr


@needs_nix
@needs_cmake
def test_cmake_finds_cupti_in_the_folders_that_nixpkgs_exports(tmp_path: Path) -> None:
    for file in ("lib/libcupti.so", "include/cupti.h"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    folders = {"LIBRARY": f"{tmp_path}/lib", "INCLUDE": f"{tmp_path}/include"}

    def found(text: str) -> str:
        head = "set(CUPTI_LIB_NAME libcupti.so)\nset(CUDA_SOURCE_DIR /nonexistent)\n"
        tail = '\nmessage("${CUPTI_LIBRARY_PATH} ${CUPTI_INCLUDE_DIR}")\n'
        env = {f"CUPTI_{name}_DIR": folder for name, folder in folders.items()}
        return cmake_script(tmp_path, head + text + tail, **env).strip()

    changed = source_of("sm90-avx2")[f"file.{hooks.DEPENDENCIES}"]
    assert found(changed) == f"{tmp_path}/lib/libcupti.so {tmp_path}/include"
    assert "NOTFOUND" in found(hooks.SOURCE[hooks.DEPENDENCIES])


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
        flags = cmake_script(tmp_path, script)
        return {part.rpartition("sm_")[2].strip() for part in flags.split(";") if "sm_" in part}

    assert added(code) == ({own} if code != "120" else {"120a", "121a"})
    assert added("90") == {"90a"}
    assert added("100") == {"100a", "103a"}, "as before"


# The guard of pull request 187006 lets no build for 10.3 alone have the code.
GUARD = '" AND NOT _existing_arch_flags MATCHES ".*compute_121.*")'
GUARDED = hooks.SOURCE[hooks.CODEGEN].replace('.*")', f".*{GUARD}")
NO_CONDITION = "build-pytorch: cmake/Codegen.cmake has no condition for 121a\n"


@needs_nix
@pytest.mark.parametrize(
    ("variant", "file", "text", "says"),
    [
        (
            "sm90-avx2",
            hooks.DEPENDENCIES,
            "# CUPTI is found elsewhere\n",
            "extras/CUPTI/lib64 is not",
        ),
        ("sm121-armv9", hooks.CODEGEN, "# rewritten\n", NO_CONDITION),
        ("sm121-armv9", hooks.CODEGEN, GUARDED, NO_CONDITION),
    ],
)
def test_a_pytorch_whose_lines_moved_stops_the_build_at_once(
    variant: str, file: str, text: str, says: str
) -> None:
    ran = source_of(variant, (file, text))
    assert ran["hook.end"]
    assert says in ran["hook.output"]
