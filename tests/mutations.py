"""Ways in which a recipe goes wrong, each as an edit of one that is right.

`GPU`, `CPU` and `ARM` name the recipes that are edited, in the release of this project; a name such
as `l1/sm61-avx` is a variant of examples/all-lines. `SMALL` is a checkout with one variant of each
kind, MKL, a Triton of its own and copies of CUDA packages: there, matrix.toml and a copy can be edited
too. After an edit of matrix.toml, all recipes are generated from it. An edit replaces text that
must be there; `gone` removes a whole line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from conftest import PROJECT

GPU = "cuda13_0-sm120-avx512"
CPU = "cpu-avx512"
ARM = "cuda13_0-sm110-armv9"
SPARK = "cuda13_0-sm121-armv9"
NEWEST = "cuda13_2"
NIGHTLY = "cuda13_0-sm121-armv9-nightly"
WRAPPER = f"{NIGHTLY}-wrapper"
VISION = "torchvision-python313-cuda13_0-sm120-avx512"
AUDIO = "torchaudio-python313-cuda13_0-sm120-avx512"
FUNCTION = f"{VISION} by nix/companion.nix"
"""The companion, by an edit of a file that its recipe imports."""
SMALL = "small/"
MATRIX = f"{SMALL}matrix.toml"
WITH_MKL = f"{SMALL}.flox/pkgs/pytorch-python313-cpu-avx2.nix"


class Mutation(NamedTuple):
    """A named mistake; `recipe` may be another file of `SMALL`."""

    name: str
    recipe: str
    edit: Callable[[str], str]


def swap(old: str, new: str) -> Callable[[str], str]:
    """Replace a text, which must be there."""

    def edit(text: str) -> str:
        assert old in text, f"{old!r} is not in the recipe"
        return text.replace(old, new, 1)

    return edit


def gone(fragment: str) -> Callable[[str], str]:
    """Remove the line that holds a fragment, which must be there."""

    def edit(text: str) -> str:
        lines = text.splitlines(keepends=True)
        kept = [line for line in lines if fragment not in line]
        assert len(kept) == len(lines) - 1, f"{fragment!r} is not on exactly one line"
        return "".join(kept)

    return edit


def cut(pattern: str, new: str = "") -> Callable[[str], str]:
    """Replace what a pattern matches, over lines, once."""

    def edit(text: str) -> str:
        changed, count = re.subn(pattern, lambda _: new, text, count=1, flags=re.DOTALL)
        assert count, f"{pattern!r} matches nothing"
        return changed

    return edit


def both(*edits: Callable[[str], str]) -> Callable[[str], str]:
    """Edits one after the other."""

    def edit(text: str) -> str:
        for single in edits:
            text = single(text)
        return text

    return edit


def wrap_attrs(line: str) -> Callable[[str], str]:
    """Add an attribute to what overrideAttrs sets."""
    return swap('  ninjaFlags = [ "-j32" ];', f'  ninjaFlags = [ "-j32" ];\n  {line}')


def before_hook(line: str) -> Callable[[str], str]:
    """Add an attribute before the first hook of a recipe without Ninja's flags."""
    return swap("  preConfigure =", f"  {line}\n  preConfigure =")


def in_hook(line: str) -> Callable[[str], str]:
    """Add a line of shell to preConfigure."""
    return swap("    export MAX_JOBS", f"    {line}\n    export MAX_JOBS")


def in_config(line: str) -> Callable[[str], str]:
    """Add an attribute to the config of nixpkgs."""
    return swap("allowUnfree = true;", f"allowUnfree = true;\n      {line}")


def with_argument(line: str) -> Callable[[str], str]:
    """Add an argument to torch.override."""
    return swap("  gpuTargets = [ gpuArchSM ];", f"  gpuTargets = [ gpuArchSM ];\n  {line}")


def with_rules(*rules: tuple[str, str, str]) -> Callable[[str], str]:
    """Add rules to matrix.toml: condition, its value, and the value of USE_CUDNN."""
    texts = [
        f"""
[[rule]]
id = "added-{number}"
when.{condition} = {value}
effect.environment = {{ USE_CUDNN = "{setting}" }}
reason = "a test"
source = "https://example.org/rule"
checked = "2026-11-21"
"""
        for number, (condition, value, setting) in enumerate(rules)
    ]
    return lambda text: text + "".join(texts)


OVERLAY_MAGMA = r"      # Overlay 2.*?\n      \}\)\n\n"
MAGMA_FLAGS = r"(?s) *# For this architecture.*?size\"; \};\n"
OVERLAY_TORCH = r"      # Overlay 3.*?\n      \}\)\n"
STUB = r"    # PyTorch installs this file.*?\n    CMAKE\n"
NIXPKGS_PATCH = r'builtins\.replaceStrings [^\n]*?or ""\) \+ '
BROKEN = r"broken = lib\.any.*?\)\);"
OVERRIDE = r"\(nixpkgs_pinned\.python3Packages\.torch\.override \{.*?\}\)\.overrideAttrs"

RECIPE = (PROJECT / f".flox/pkgs/pytorch-python313-{GPU}.nix").read_text()


def with_overlay(pattern: str, without: str) -> Callable[[str], str]:
    """Add an overlay of `GPU`, without a part of it."""
    found = re.search(pattern, RECIPE, re.DOTALL)
    assert found, pattern
    kept, number = re.subn(without, "", found[0])
    assert number == 1, without
    return swap("    overlays = [", f"    overlays = [\n{kept}")


MUTATIONS = (
    # --- overlays and nixpkgs ---
    Mutation("CUDA overlay dropped", GPU, cut(r"      # Overlay 1.*?\n      \}\)\n\n")),
    Mutation("MAGMA overlay dropped", GPU, cut(OVERLAY_MAGMA)),
    Mutation("torch overlay dropped", GPU, cut(OVERLAY_TORCH)),
    Mutation("torch overlay dropped, CPU-only", CPU, cut(r"      # Overlay 1.*?\n      \}\)\n")),
    Mutation("another CUDA package set", GPU, swap("final.cudaPackages_13.", "final.cudaPackages_12.")),
    Mutation("the default CUDA kept", GPU, swap("final.cudaPackages_13.", "prev.cudaPackages.")),
    Mutation("an overlay twice", GPU, swap("    overlays = [", "    overlays = [\n      (final: prev: { })")),
    Mutation("CUDA overlay in a CPU-only recipe", CPU,
             swap("    overlays = [", "    overlays = [\n      (final: prev: { cudaPackages = final.cudaPackages_13; })")),
    Mutation("MAGMA patch commented out", GPU, cut(r"\(final\.fetchpatch \{.*?\}\)", "# no patch\n")),
    Mutation("MAGMA patch of another commit", GPU, swap("commit/235aefb7", "commit/135aefb7")),
    Mutation("MAGMA patch on a name that torch does not link", GPU,
             swap("magma = prev.magma.overrideAttrs", "magma-patched = prev.magma.overrideAttrs")),
    Mutation("MAGMA patch without its hash", GPU, gone("sha256-i9Inbx")),
    Mutation("MAGMA patch with the hash of the source", GPU,
             swap("sha256-i9InbxD5HtfonB/GyF9nQhFmok3jZ73RxGcIciGBGvU=", "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ=")),
    Mutation("retired pin", GPU, swap("6a030d535719c5190187c4cec156f335e95e3211", "fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3")),
    Mutation("pin with one digit off", CPU, swap("6a030d535719", "6a030d535718")),
    Mutation("moving nixpkgs branch", GPU, swap("6a030d535719c5190187c4cec156f335e95e3211", "nixos-unstable")),
    Mutation("nixpkgs of the caller", GPU, swap("(nixpkgs_pinned.python3Packages.torch", "(pkgs.python3Packages.torch")),
    Mutation("allowBroken for every package", GPU, in_config("allowBroken = true;")),
    Mutation("every broken package allowed by a predicate", GPU, in_config("allowBrokenPredicate = _: true;")),
    Mutation("left as broken", GPU, cut(BROKEN)),
    Mutation("marked as broken", GPU, cut(BROKEN, "broken = true;")),
    Mutation("every reason to be broken forgiven", GPU, cut(BROKEN, "broken = false;")),
    Mutation("one more reason to be broken forgiven", GPU, swap('"Unsupported CUDA version"', '"Unsupported CUDA version" "another reason"')),
    Mutation("MAGMA without the patches of nixpkgs", GPU, swap("patches = (oldAttrs.patches or []) ++ [", "patches = [")),
    Mutation("NCCL without code for Thor", ARM, swap("arch=compute_${arch},code=sm_${arch}", "arch=compute_90,code=sm_90")),
    Mutation("NCCL of nixpkgs for Thor", ARM, cut(r"\.overrideScope \(_: cprev:.*?\n        \}\);", ";")),
    Mutation("NCCL flags of nixpkgs lost", ARM, swap("makeFlags = (oldAttrs.makeFlags or []) ++ [", "makeFlags = [")),
    Mutation("MAGMA without code for Thor", ARM, gone("-DCMAKE_CUDA_ARCHITECTURES=110")),
    Mutation("MAGMA without the least architecture of Thor", ARM, gone("-DMIN_ARCH=1100")),
    Mutation("MAGMA flags of nixpkgs lost", ARM, swap('cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [\n            "-DCMAKE_CUDA', 'cmakeFlags = [\n            "-DCMAKE_CUDA')),
    Mutation("MAGMA for another architecture", GPU, swap(
        "-DMIN_ARCH=1200", '-DMIN_ARCH=1200" "-DCMAKE_CUDA_ARCHITECTURES=90')),
    Mutation("allowUnfree dropped", GPU, gone("allowUnfree = true;")),
    Mutation("system dropped from an ARM recipe", ARM, gone('system = "aarch64-linux";')),
    Mutation("system of the other platform", ARM, swap('system = "aarch64-linux"', 'system = "x86_64-linux"')),
    Mutation("tarball hash malformed", GPU, swap('.tar.gz";', '.tar.gz";\n    sha256 = "sha256-abc";')),
    # --- the source ---
    Mutation("version of the overlay left at 2.9.1", GPU, swap('version = "2.10.0"', 'version = "2.9.1"')),
    Mutation("tag of the overlay left at 2.9.1", GPU, swap('rev = "v2.10.0"', 'rev = "v2.9.1"')),
    Mutation("a branch instead of the tag", CPU, swap('rev = "v2.10.0"', 'rev = "main"')),
    Mutation("source of a fork", GPU, swap('owner = "pytorch"', 'owner = "someone"')),
    Mutation("empty source hash", GPU, swap('hash = "sha256-RKi', 'hash = ""; # "sha256-RKi')),
    Mutation("fake source hash", CPU, cut(r"sha256-RKi[^\"]*", "sha256-" + "A" * 43 + "=")),
    Mutation("stale source hash", GPU, swap("sha256-RKiZ", "sha256-SKiZ")),
    Mutation("hash with a character missing", GPU, swap("sha256-RKiZ", "sha256-RKi")),
    Mutation("submodules forgotten", GPU, swap("fetchSubmodules = true", "fetchSubmodules = false")),
    Mutation("source not replaced with the version", CPU, cut(r"src = prev\.fetchFromGitHub \{.*?\};\n")),
    Mutation("nixpkgs' patches kept", GPU, lambda text: text.replace("patches = [];", "")),
    # --- override ---
    Mutation("override dropped", GPU, cut(OVERRIDE, "nixpkgs_pinned.python3Packages.torch.overrideAttrs")),
    Mutation("override dropped, CPU-only", CPU, cut(OVERRIDE, "nixpkgs_pinned.python3Packages.torch.overrideAttrs")),
    Mutation("override after overrideAttrs", GPU, both(
        cut(OVERRIDE, "(nixpkgs_pinned.python3Packages.torch.overrideAttrs"),
        cut(r"\}\)\n$", "})).override { cudaSupport = true; gpuTargets = [ gpuArchSM ]; }\n"))),
    Mutation("cudaSupport off", GPU, swap("  cudaSupport = true;\n  gpu", "  cudaSupport = false;\n  gpu")),
    Mutation("cudaSupport left to the config", GPU, swap("  cudaSupport = true;\n  gpu", "  gpu")),
    Mutation("cudaSupport on in a CPU-only recipe", CPU, swap("cudaSupport = false", "cudaSupport = true")),
    Mutation("cudaPackages handed to override", GPU, with_argument("cudaPackages = nixpkgs_pinned.cudaPackages_12_9;")),
    Mutation("the right cudaPackages handed to override", GPU, with_argument("inherit (nixpkgs_pinned) cudaPackages;")),
    Mutation("an argument that torch does not take", GPU, with_argument('cudaArch = "12.0";')),
    Mutation("a misspelled argument", GPU, swap("  gpuTargets = [", "  gpuTarget = [")),
    Mutation("MAGMA argument of the wrong kind", GPU, with_argument("effectiveMagma = nixpkgs_pinned.magma;")),
    Mutation("another Python's torch", GPU, swap("(nixpkgs_pinned.python3Packages", "(nixpkgs_pinned.python313Packages")),
    Mutation("the attribute pytorch", GPU, swap("python3Packages.torch.override", "python3Packages.pytorch.override")),
    # --- architecture ---
    Mutation("capability of another architecture", GPU, swap('gpuArchSM = "12.0"', 'gpuArchSM = "9.0"')),
    Mutation("capability written sm_120", GPU, swap('gpuArchSM = "12.0"', 'gpuArchSM = "sm_120"')),
    Mutation("sm_120 written into gpuTargets", GPU, swap("gpuTargets = [ gpuArchSM ]", 'gpuTargets = [ "sm_120" ]')),
    Mutation("gpuTargets as a string", GPU, swap("gpuTargets = [ gpuArchSM ]", "gpuTargets = gpuArchSM")),
    Mutation("gpuTargets dropped", GPU, gone("gpuTargets = [")),
    Mutation("two architectures", GPU, swap("gpuTargets = [ gpuArchSM ]", 'gpuTargets = [ gpuArchSM "9.0" ]')),
    Mutation("gpuArchNum of another architecture", GPU, swap('gpuArchNum = "120"', 'gpuArchNum = "90"')),
    # --- Nix ---
    Mutation("a name out of scope", GPU, swap('echo "PyTorch 2.10.0,', 'echo "PyTorch ${version},')),
    Mutation("a brace missing", GPU, cut(r"\}\)\n$", ")\n")),
    Mutation("a semicolon missing", CPU, swap('"pytorch210-python313-cpu-avx512";', '"pytorch210-python313-cpu-avx512"')),
    Mutation("quotes before ${ missing in the stub", GPU, swap("''${CMAKE_ROOT}", "${CMAKE_ROOT}")),
    Mutation("quotes before ${ missing in the shell", CPU, swap("''${NIX_BUILD_CORES:-0}", "${NIX_BUILD_CORES:-0}")),
    Mutation("an attribute twice", GPU, wrap_attrs('ninjaFlags = [ "-j8" ];')),
    Mutation("the file cut off", GPU, cut(r"  passthru = .*")),
    Mutation("the file empty", CPU, lambda _: ""),
    Mutation("a set instead of a function", CPU, lambda text: "{ recipe = " + repr(len(text)) + "; }\n"),
    Mutation("env and attribute of one name", GPU, wrap_attrs('env = { PYTORCH_BUILD_VERSION = "2.10.0"; };')),
    # --- flags and hooks ---
    Mutation("flags of another ISA", GPU, swap('"-mavx512bw" "-mfma"', '"-mavx512bw" "-mavx512bf16" "-mfma"')),
    Mutation("a flag dropped", CPU, swap(' "-mavx512vl"', "")),
    Mutation("a flag that no compiler takes", ARM, swap("-march=armv9-a+sve2", "-march=armv9-a+sve9")),
    Mutation("CXXFLAGS not exported", GPU, gone('export CXXFLAGS="${lib')),
    Mutation("CFLAGS not exported", ARM, gone('export CFLAGS="${lib')),
    Mutation("CXXFLAGS replaced, not prefixed", CPU, swap(' cpuFlags} $CXXFLAGS"', ' cpuFlags}"')),
    Mutation("MAX_JOBS of another machine", GPU, swap("export MAX_JOBS=32", "export MAX_JOBS=64")),
    Mutation("the effective job limit dropped", CPU, gone("export NIX_BUILD_CORES")),
    Mutation("ninjaFlags dropped", GPU, gone("ninjaFlags =")),
    Mutation("build version left at 2.9.1", GPU, swap("PYTORCH_BUILD_VERSION=2.10.0", "PYTORCH_BUILD_VERSION=2.9.1")),
    Mutation("build version not exported", CPU, gone("export PYTORCH_BUILD_VERSION")),
    Mutation("version.txt forgotten", GPU, gone("> version.txt")),
    Mutation("cmake flag of another version", GPU, swap("-DTORCH_BUILD_VERSION=2.10.0", "-DTORCH_BUILD_VERSION=2.9.1")),
    Mutation("cmake flag of another CUDA", GPU, swap("-DCUDA_VERSION=13.0", "-DCUDA_VERSION=12.8")),
    Mutation("cmake flags of nixpkgs lost", GPU, swap('cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [\n    "-DTORCH', 'cmakeFlags = [\n    "-DTORCH')),
    Mutation("CUDA not switched off in CMake", CPU, gone('"-DUSE_CUDA=OFF"')),
    Mutation("CUDA not switched off in the environment", CPU, gone("export USE_CUDA=0")),
    Mutation("MAGMA switched off in CMake", GPU, swap('"-DCUDA_VERSION=13.0"', '"-DCUDA_VERSION=13.0"\n    "-DUSE_MAGMA=OFF"')),
    Mutation("MAGMA switched off in the environment", GPU, in_hook("export USE_MAGMA=0")),
    Mutation("MAGMA filtered out of the inputs", GPU,
             wrap_attrs('buildInputs = builtins.filter (p: (p.pname or "") != "magma") oldAttrs.buildInputs;')),
    Mutation("MAGMA compiled for another architecture", GPU, swap("-DCMAKE_CUDA_ARCHITECTURES=120", "-DCMAKE_CUDA_ARCHITECTURES=90")),
    Mutation("NCCL compiled for all architectures", GPU, cut(r" *makeFlags = [^;]*;\n")),
    Mutation("NCCL without the compression of the rule", GPU, cut(r"(?<=];\n) *env = [^;]*; \};\n")),
    Mutation("torch without the compression of the rule", GPU, gone("export NVCC_APPEND_FLAGS")),
    Mutation("inputs replaced", GPU, wrap_attrs("buildInputs = [ nixpkgs_pinned.cudaPackages.cudatoolkit ];")),
    Mutation("preConfigure replaced", GPU, swap('preConfigure = (oldAttrs.preConfigure or "") + ', "preConfigure = ")),
    Mutation("postPatch replaced", GPU, cut(NIXPKGS_PATCH)),
    Mutation("a text of nixpkgs that another version lacks stops the build", GPU,
             cut(r'builtins\.replaceStrings \[ "--replace-fail" \] \[ "--replace-warn" \] ')),
    Mutation("a text of nixpkgs that another version lacks stops the build, CPU-only", CPU,
             cut(r'builtins\.replaceStrings \[ "--replace-fail" \] \[ "--replace-warn" \] ')),
    Mutation("the tests of nixpkgs' torch in passthru", GPU, gone("tests = { };")),
    Mutation("MPI", GPU, with_argument("MPISupport = true;")),
    Mutation("a local checkout in a folder of another name", WRAPPER, swap('else if builtins.substring 0 1 local == "/" then /. + local', 'else if builtins.substring 0 1 local == "/" then /. + (local + "/cuda")')),
    Mutation("a local checkout that is not read", WRAPPER, swap('if local == "" then fetched', 'if local == "" || true then fetched')),
    Mutation("CCCL folder under another name", GPU, swap("for library in cuda cub thrust nv", "for library in cuda cub thrust")),
    Mutation("CCCL folder that only the sandbox has", GPU, lambda text: text.replace("$NIX_BUILD_TOP/cccl", "/build/cccl")),
    Mutation("a flag for a folder that only the sandbox has", GPU, swap('CUDAFLAGS="-I$NIX_BUILD_TOP', 'CUDAFLAGS="-I/build')),
    Mutation("CCCL links dropped", GPU, gone("ln -sfn")),
    Mutation("CUDAFLAGS forgotten", GPU, gone("export CUDAFLAGS")),
    Mutation("stub dropped", GPU, cut(STUB)),
    Mutation("stub empty", GPU, cut(r"    if\(NOT CUDAToolkit_FOUND\).*?endif\(\)\n")),
    Mutation("stub before nixpkgs removes the file", GPU, both(
        cut(NIXPKGS_PATCH),
        swap("  '';\n\n  passthru", "  '' + (oldAttrs.postPatch or \"\");\n\n  passthru"))),
    Mutation("stub that includes by name", GPU, swap("include(\"''${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake\")", "include(FindCUDAToolkit)")),
    Mutation("stub that includes itself", GPU, swap("''${CMAKE_ROOT}/Modules", "''${CMAKE_CURRENT_LIST_DIR}")),
    Mutation("CUPTI paths dropped", GPU, cut(r"    substituteInPlace cmake/Dependencies.*?INCLUDE_DIR\}'\n")),
    Mutation("CUPTI library without its path", GPU, swap("extras/CUPTI/lib64 $ENV{CUPTI_LIBRARY_DIR}", "extras/CUPTI/lib64")),
    Mutation("CUPTI headers from the library's path", GPU, swap("$ENV{CUPTI_INCLUDE_DIR}", "$ENV{CUPTI_LIBRARY_DIR}")),
    Mutation("CUPTI paths in another file", GPU, swap("substituteInPlace cmake/Dependencies.cmake", "substituteInPlace cmake/Codegen.cmake")),
    Mutation("Codegen condition dropped", SPARK, cut(r"    sed -i '/\"121a\"/.*?cmake/Codegen\.cmake\n")),
    Mutation("Codegen condition of another code", SPARK, swap("'/\"121a\"/", "'/\"120a\"/")),
    Mutation("Codegen condition that leaves the base out", SPARK, swap('compute_(120|121).*")/', 'compute_121.*")/')),
    Mutation("Codegen conditions of all codes", SPARK, swap('/"121a"/,/endif()/s', "s")),
    Mutation("the build goes on for another Codegen", SPARK, gone("      exit 1\n")),
    Mutation("a Codegen condition that ends later", SPARK, swap(r's/compute_120\.\*")/compute_(120|121).*")/', "s/compute_120/compute_(120|121)/")),
    Mutation("no message for another Codegen", SPARK, gone("has no condition for 121a")),
    Mutation("a sed that may change nothing", GPU, swap("    substituteInPlace cmake/Dep", "    sed -i s/one/other/ cmake/Dependencies.cmake\n    substituteInPlace cmake/Dep")),
    Mutation("a substitution that may find nothing", GPU, swap("--replace-fail 'extras/CUPTI/lib64'", "--replace-quiet 'extras/CUPTI/lib64'")),
    Mutation("CUDA packages of the pin in a wrapper", WRAPPER, gone("cudnn = call")),
    Mutation("the file of another CUDA package", WRAPPER, swap("/nccl-13_0.nix", "/cudnn-13_0.nix")),
    Mutation("CUDA packages of another revision", WRAPPER, swap("archive/0696b3db", "archive/1696b3db")),
    Mutation("CUDA packages of another hash", WRAPPER, swap("sha256-eo0Xz", "sha256-eo0Xy")),
    Mutation("CUDA packages of a branch", WRAPPER, cut(r"archive/0696b3db[0-9a-f]{32}", "archive/main")),
    Mutation("a local path in place of the repository", WRAPPER, cut(r"builtins\.fetchTarball \{\s+url = \"https://github.com/barst.*?\};", "/home/me/build-cudatoolkit;")),
    Mutation("a result link in place of the repository", WRAPPER, cut(r"builtins\.fetchTarball \{\s+url = \"https://github.com/barst.*?\};", "../build-cudatoolkit/result-cudatoolkit-13_0;")),
    Mutation("CUDA packages as an argument of torch", WRAPPER, with_argument("cudaPackages = nixpkgs_pinned.cudaPackages_13_0;")),
    Mutation("a nightly of a branch", NIGHTLY, cut(r'rev = "6fc0ad22[0-9a-f]{32}"', 'rev = "nightly"')),
    Mutation("a nightly of another day", NIGHTLY, swap("PYTORCH_BUILD_VERSION=2.10.0.dev20251015", "PYTORCH_BUILD_VERSION=2.10.0.dev20251016")),
    Mutation("a nightly with the version of a release", NIGHTLY, swap("PYTORCH_BUILD_VERSION=2.10.0.dev20251015", "PYTORCH_BUILD_VERSION=2.10.0")),
    Mutation("a version that is not in scope", NIGHTLY, swap('echo "PyTorch 2.10.0.dev20251015', 'echo "PyTorch ${version}')),
    Mutation("postFixup with addDriverRunpath", GPU, wrap_attrs("postFixup = ''${nixpkgs_pinned.hello or \"\"}/bin/x'';")),
    Mutation("addDriverRunpath called", GPU, in_hook('${lib.addDriverRunpath or ""}/bin/addDriverRunpath\n    addDriverRunpath/bin')),
    Mutation("a result link as an input", GPU, in_hook("export CUDA_HOME=../build-cudatoolkit/result-cudatoolkit-13_0")),
    Mutation("a path of a user's machine", CPU, in_hook("export CUDA_HOME=/home/daedalus/dev/cuda")),
    Mutation("big-parallel dropped", GPU, swap('requiredSystemFeatures = [ "big-parallel" ]', "requiredSystemFeatures = [ ]")),
    # --- names and facts ---
    Mutation("a builder feature that the matrix does not ask for", GPU, swap('[ "big-parallel" ]', '[ "big-parallel" "gccarch-skylake-avx512" ]')),
    Mutation("pname of another variant", GPU, swap('sm120-avx512";\n', 'sm120-avx2";\n')),
    Mutation("pname of another release", CPU, swap('"pytorch210-', '"pytorch29-')),
    Mutation("platform of another machine", ARM, swap('platforms = [ "aarch64-linux" ]', 'platforms = [ "x86_64-linux" ]')),
    Mutation("passthru replaced", GPU, swap("passthru = (oldAttrs.passthru or {}) // {", "passthru = {")),
    Mutation("passthru of another ISA", GPU, swap('cpuISA = "avx512"', 'cpuISA = "avx2"')),
    Mutation("passthru without the architecture", GPU, swap("gpuArch = gpuArchSM;", "gpuArch = null;")),
    Mutation("capabilities of the config for packages built with torch", GPU, gone("cudaCapabilities = [ gpuArchSM ];")),
    Mutation("capabilities of another GPU for packages built with torch", GPU, swap("cudaCapabilities = [ gpuArchSM ]", 'cudaCapabilities = [ "9.0" ]')),
    Mutation("BLAS of a CPU-only build", GPU, swap('blasProvider = "cublas"', 'blasProvider = "openblas"')),
    Mutation("MKL where the matrix has OpenBLAS", GPU, swap("  gpuTargets =", "  blas = nixpkgs_pinned.blas.override { blasProvider = nixpkgs_pinned.mkl; };\n  gpuTargets =")),
    Mutation("OpenBLAS where the matrix has MKL", WITH_MKL, gone("  blas = nixpkgs_pinned.blas")),
    Mutation("MKL by its name in passthru alone", WITH_MKL, swap("blasProvider = nixpkgs_pinned.mkl", "blasProvider = nixpkgs_pinned.openblas")),
    Mutation("MKL with link folders that Nix does not have", WITH_MKL, cut(r"    substituteInPlace cmake/public/mkl.*?\"\"\n")),
    Mutation("MKL without the consent to its licence", WITH_MKL, gone("allowUnfree = true;")),
    Mutation("driver of another CUDA", GPU, swap("Driver: NVIDIA 580.65.06", "Driver: NVIDIA 525.60.13")),
    Mutation("description of another version", CPU, swap('description = "PyTorch 2.10.0', 'description = "PyTorch 2.9.1')),
    Mutation("a text of the matrix that Nix reads as code", GPU, swap("CPUs: Skylake-X,", 'CPUs: ${builtins.concatStringsSep "" [ "Sky" "rapids" ]},')),
    Mutation("a text of the matrix changed by its escapes", CPU, swap("AVX-512 (-m", "AVX''\\n512 (-m")),
    Mutation("code in the description", GPU, swap("RTX PRO Blackwell) and", '${"RTX"} Blackwell) and')),
    # --- found by somebody who tried to get past the checks ---
    Mutation("CUDA switched off in the environment", GPU, in_hook("export USE_CUDA=0")),
    Mutation("CUDA switched off by a CMake flag", GPU, swap('"-DCUDA_VERSION=13.0"', '"-DCUDA_VERSION=13.0"\n    "-DUSE_CUDA=OFF"')),
    Mutation("CUDA switched off by an attribute", GPU, wrap_attrs('USE_CUDA = "0";')),
    Mutation("CUDA switched on again", CPU, swap("export USE_CUDA=0", "export USE_CUDA=0\n    export USE_CUDA=1")),
    Mutation("cudaSupport in the config of a CPU-only recipe", CPU, in_config("cudaSupport = true;")),
    Mutation("config without cudaSupport", GPU, gone("      cudaSupport = true;")),
    Mutation("rocmSupport in config", GPU, in_config("rocmSupport = true;")),
    Mutation("cudaForwardCompat in config", GPU, in_config("cudaForwardCompat = true;")),
    Mutation("cudaForwardCompat off in config", GPU, in_config("cudaForwardCompat = false;")),
    Mutation("rocmSupport in config, CPU-only", CPU, in_config("rocmSupport = true;")),
    Mutation("capabilities in the config", GPU, in_config('cudaCapabilities = [ "8.0" ];')),
    Mutation("the next minor version of CUDA", GPU, swap("final.cudaPackages_13.", "final.cudaPackages_13_1.")),
    Mutation("headers of another CUDA", GPU, swap("(nixpkgs_pinned.cudaPackages) cuda_cccl", "(nixpkgs_pinned.cudaPackages_12) cuda_cccl")),
    Mutation("the links commented out in the shell", GPU, swap("      ln -sfn", "      # ln -sfn")),
    Mutation("the stub commented out in the shell", GPU, swap("    cat > cmake", "    # cat > cmake")),
    Mutation("version.txt commented out in the shell", GPU, swap('    echo "2.10.0" >', '    # echo "2.10.0" >')),
    Mutation("the job limit commented out in the shell", CPU, swap("    export NIX_BUILD_CORES", "    # export NIX_BUILD_CORES")),
    Mutation("a job limit ten times as high", CPU, swap("cores < 32 ? cores : 32", "cores < 320 ? cores : 320")),
    Mutation("preBuild replaced", GPU, wrap_attrs('preBuild = "export MAX_JOBS=64";')),
    Mutation("the shell fills in the stub", GPU, swap("<<'CMAKE'", "<<CMAKE")),
    Mutation("the stub not closed", GPU, gone("    endif()")),
    Mutation("the stub removed again", GPU, swap("    CMAKE\n\n", "    CMAKE\n    rm cmake/Modules/FindCUDAToolkit.cmake\n\n")),
    Mutation("flags taken back", GPU, in_hook("unset CXXFLAGS")),
    Mutation("flags replaced later on", CPU, in_hook("export CXXFLAGS=-O2")),
    Mutation("the architectures replaced in the shell", GPU, in_hook("TORCH_CUDA_ARCH_LIST=9.0")),
    Mutation("no folder for the links", GPU, gone("mkdir -p")),
    Mutation("nixpkgs of a fork", GPU, swap("github.com/NixOS/nixpkgs", "github.com/someone/nixpkgs")),
    Mutation("the patch fetched raw", GPU, swap("(final.fetchpatch {", "(final.fetchurl {")),
    Mutation("system dropped from an x86 recipe", GPU, gone('system = "x86_64-linux";')),
    Mutation("a description of another GPU", GPU, swap("for SM120 (RTX", "for SM90 (RTX")),
    # --- hooks and attributes that read well and do the wrong thing ---
    Mutation("the job limit inverted", GPU, swap("cores < 32 ? cores : 32", "cores > 32 ? cores : 32")),
    Mutation("no job limit if Nix gives all cores", CPU, swap("then cores=$(nproc); fi", "then export NIX_BUILD_CORES=$(nproc); fi")),
    Mutation("exit in preConfigure", GPU, in_hook("exit 0")),
    Mutation("return in preConfigure", CPU, in_hook("return 0")),
    Mutation("a command that fails in preConfigure", CPU, in_hook("false")),
    Mutation("the architectures unset", GPU, in_hook("unset TORCH_CUDA_ARCH_LIST")),
    Mutation("CUPTI unset", GPU, in_hook("unset CUPTI_LIBRARY_DIR")),
    Mutation("the ISA for nvcc although the matrix has it off", GPU, swap('export CUDAFLAGS="-I', 'export CUDAFLAGS="-Xcompiler=-mavx512f -I')),
    Mutation("the ISA for nvcc in another variable", GPU, in_hook("export NVCC_PREPEND_FLAGS=-Xcompiler=-mavx512f")),
    Mutation("jobs in another variable", GPU, in_hook("export CMAKE_BUILD_PARALLEL_LEVEL=64")),
    Mutation("cuDNN switched off", GPU, in_hook("export USE_CUDNN=0")),
    Mutation("flags after the user's", CPU, swap('CXXFLAGS="${lib.concatStringsSep " " cpuFlags} $CXXFLAGS"', 'CXXFLAGS="$CXXFLAGS ${lib.concatStringsSep " " cpuFlags}"')),
    Mutation("flags built in two steps with a wrong one", CPU, in_hook("more=-mavx512; export CFLAGS=\"''${more}ifma $CFLAGS\"")),
    Mutation("the source changed on the way", GPU, in_hook("echo > CMakeLists.txt")),
    Mutation("no import check", GPU, wrap_attrs("pythonImportsCheck = [ ];")),
    Mutation("other outputs", GPU, wrap_attrs('outputs = [ "out" "dist" ];')),
    Mutation("CMake run by Nix", GPU, wrap_attrs("dontUseCmakeConfigure = false;")),
    Mutation("no Triton", GPU, with_argument("tritonSupport = false;")),
    Mutation("no NCCL of nixpkgs", GPU, with_argument("useSystemNccl = false;")),
    Mutation("an attribute that nixpkgs does not have", CPU, wrap_attrs("dontStrip = true;")),
    Mutation("a path of the system", GPU, in_hook("export CUDA_HOME=/usr/local/cuda")),
    # --- rules, pins and lines ---
    Mutation("a switch of a rule missing", "l1/sm61-avx2", gone("export USE_CUDNN=0")),
    Mutation("NCCL of nixpkgs for Pascal", "l1/sm61-avx2", cut(r"\.overrideScope \(_: cprev:.*?\n        \}\);", ";")),
    Mutation("MAGMA of nixpkgs for Volta", "l4/sm70-avx2", cut(r"      # Overlay 2.*?\n      \}\)\n")),
    Mutation("MAGMA for another architecture than Volta", "l4/sm70-avx2", swap("ARCHITECTURES=70", "ARCHITECTURES=75")),
    Mutation("a switch of a rule with another value", "l1/sm61-avx2", swap("USE_CUDNN=0", "USE_CUDNN=1")),
    Mutation("a switch on a GPU that needs none", "l1/sm90-avx2", in_hook("export USE_CUDNN=0")),
    Mutation("a switch of two rules that add up missing", "l4/sm70-avx", gone("export USE_FBGEMM=0")),
    Mutation("a switch of the ISA missing in a CPU-only recipe", "l4/cpu-avx", gone("export USE_MKLDNN_CBLAS=0")),
    Mutation("a switch of the ISA on another ISA", "l4/cpu-avx2", in_hook("export USE_NNPACK=0")),
    Mutation("a CMake flag of a rule missing", "l1/sm90-avx", gone("-DC_AVX512_FOUND=FALSE")),
    Mutation("a CMake flag on another ISA", "l1/sm90-avx2", swap('"-DCUDA_VERSION=12.8"', '"-DCUDA_VERSION=12.8"\n    "-DC_AVX512_FOUND=FALSE"')),
    Mutation("a switch taken back later on", "l1/sm61-avx", swap('    echo "PyTorch', '    unset USE_CUDNN\n    echo "PyTorch')),
    Mutation("the MAGMA patch kept with a pin that has it", "l16/sm120-avx2", with_overlay(OVERLAY_MAGMA, MAGMA_FLAGS)),
    Mutation("the MAGMA patch on a CUDA that needs none", "l13/sm120-avx2", with_overlay(OVERLAY_MAGMA, MAGMA_FLAGS)),
    Mutation("the CCCL headers missing with the torch of the pin", "l10/sm120-avx2", gone("ln -sfn")),
    Mutation("the stub missing on CUDA 12", "l13/sm120-avx2", cut(r"    cat > cmake.*?CMAKE\n")),
    Mutation("the condition for sm_103a missing", "l9/sm103-avx2", cut(r"    sed -i .*?\n")),
    Mutation("the overlay on another Python set", "l13/sm120-avx2", both(
        swap("python3Packages = prev.python3Packages", "python312Packages = prev.python312Packages"))),
    Mutation("the torch of another Python", "l2/sm120-avx2", swap("python312Packages.torch", "python3Packages.torch")),
    Mutation("the torch of another Python, CPU-only", "l3/cpu-avx2", swap("python311Packages.torch", "python312Packages.torch")),
    Mutation("patches cleared with the torch of the pin", "l8/sm120-avx2", wrap_attrs("patches = [];")),
    Mutation("another version with the torch of the pin", "l8/sm120-avx2", wrap_attrs('version = "2.10.0";')),
    Mutation("the build version with the torch of the pin", "l8/cpu-avx2", in_hook("export PYTORCH_BUILD_VERSION=2.10.0")),
    Mutation("an overlay of torch in a line without one", "l8/sm120-avx2", with_overlay(OVERLAY_TORCH, r" *patches = \[\];\n")),
    Mutation("two lines mixed: the pin of another line", "l8/sm120-avx2", swap("0182a361324364ae3f436a63005877674cf45efb", "46336d4d6980ae6f136b45c8507b17787eb186a0")),
    Mutation("two lines mixed: the CUDA of another line", "l9/sm120-avx2", swap("cudaPackages_12_9", "cudaPackages_12_8")),
    Mutation("two lines mixed: the tarball hash of another pin", "l4/sm120-avx2", swap('.tar.gz";', '.tar.gz";\n    sha256 = "sha256-0NBlEBKkN3lufyvFegY4TYv5mCNHbi5OmBDrzihbBMQ=";')),
    Mutation("allowBroken in a line that needs none", "l8/sm120-avx2", in_config("allowBroken = true;")),
    Mutation("Metal switched off", "l1/darwin-mps", gone("export USE_MPS=1")),
    # --- companions ---
    Mutation("a companion with the torch of another variant", VISION,
             swap("pkgs/pytorch-python313-cuda13_0-sm120-avx512.nix", "pkgs/pytorch-python313-cuda13_0-sm90-avx512.nix")),
    Mutation("a companion with the nixpkgs of another platform", VISION, swap("gpu-x86_64-linux.nix", "gpu-aarch64-linux.nix")),
    Mutation("a companion with a copy of the torch recipe", FUNCTION,
             swap("{ inherit torch; }", '{ torch = torch.overrideAttrs { pname = "pytorch210-for-torchvision"; }; }')),
    Mutation("a companion with the torch of nixpkgs", FUNCTION, swap("{ inherit torch; }", "{ cudaSupport = true; }")),
    Mutation("a companion that installs another torch as well", FUNCTION,
             swap("[ torch.out ]", "[ torch.out nixpkgs_pinned.python3Packages.torch ]")),
    Mutation("a companion with a version and no source", VISION, gone("  source = {")),
    Mutation("a companion with a source and no version", FUNCTION, gone("inherit version;")),
    Mutation("a companion with the version of the pin", VISION, swap('version = "0.25.0"', 'version = "0.24.1"')),
    Mutation("a companion with the hash of another source", AUDIO,
             swap("sha256-b1sjHVFXdNFDbdtXWSM2KisSRE/8IbzJI4rvzYQ4UMg=", "sha256-oktJHcT6T4f58pUO+HSBpbyS1ISH3zDlTsXQh6PcMy4=")),
    Mutation("a companion without the patches that the matrix keeps", AUDIO, swap("keepPatches = true", "keepPatches = false")),
    Mutation("a companion compiled for another architecture", FUNCTION, swap("${torch.gpuArch}", "9.0")),
    Mutation("a companion compiled for all architectures of nixpkgs", FUNCTION, gone("export TORCH_CUDA_ARCH_LIST")),
    Mutation("a companion of python313Packages", VISION, swap("python3Packages.torchvision", "python313Packages.torchvision")),
    Mutation("a companion without torch's out", FUNCTION, gone("propagatedBuildInputs =")),
    Mutation("a companion that loses what nixpkgs installs with it", FUNCTION, swap("(oldAttrs.propagatedBuildInputs or [ ]) ++ ", "")),
    Mutation("a companion whose preConfigure replaces that of nixpkgs", FUNCTION, cut(r'\(oldAttrs\.preConfigure or ""\)\s*\+ ')),
    Mutation("a companion without the flags of the ISA", FUNCTION, gone("export CXXFLAGS")),
    Mutation("a companion with the flags of another ISA", VISION, swap('cpuFlags = [ "-mavx512f"', 'cpuFlags = [ "-mavx512bf16"')),
    Mutation("a companion with all cores", FUNCTION, gone("export NIX_BUILD_CORES")),
    Mutation("a companion without the system features", FUNCTION, gone("requiredSystemFeatures")),
    Mutation("a companion with the pname of nixpkgs", FUNCTION, gone("inherit pname;")),
    Mutation("a companion with the pname of another one", VISION, swap('pname = "torchvision-', 'pname = "vision-')),
    Mutation("a companion for another platform", FUNCTION, swap("inherit (torch.meta) platforms;", 'platforms = [ "aarch64-linux" ];')),
    Mutation("a companion with another architecture in passthru", FUNCTION, swap("gpuArch = torch.gpuArch or null", 'gpuArch = "9.0"')),
    Mutation("a companion that does not name its driver", FUNCTION, swap('torch.meta.longDescription or ""', '"GPU: SM120"')),
    Mutation("a companion of another PyTorch in its description", FUNCTION, swap("${torch.meta.description}", "PyTorch 2.9.1")),
    Mutation("a companion without the torch overlay", f"{VISION} by nix/nixpkgs/cuda13_0-gpu-x86_64-linux.nix", cut(OVERLAY_TORCH)),
    Mutation("a companion whose overrideAttrs comes first", FUNCTION, swap("package.override { inherit torch; }", "package.overrideAttrs (_: { })")),
    *(Mutation(f"a companion with {line} in its hook", FUNCTION, swap('        echo "Jobs:', f'        {line}\n        echo "Jobs:'))
      for line in ("export FORCE_CUDA=0", "unset TORCH_CUDA_ARCH_LIST", "exit 0", "export CXXFLAGS=", "export USE_CUDA=0")),
    Mutation("a companion with an empty env", FUNCTION, swap("    inherit pname;", "    inherit pname;\n    env = { };")),
    Mutation("a companion without CUDA by its env", FUNCTION, swap("    inherit pname;", "    inherit pname;\n    env = (oldAttrs.env or { }) // { FORCE_CUDA = 0; };")),
    Mutation("a stub without the flags of the ISA", VISION, cut(r"cpuFlags = \[.*?\];", "cpuFlags = [ ];")),
    Mutation("a stub with another limit of jobs", VISION, swap("maxJobs = 32", "maxJobs = 64")),
    Mutation("a stub that imports another nixpkgs", VISION, swap("nixpkgs_pinned ? import ../", "nixpkgs_pinned ? import ../../../nix/nixpkgs/cuda13_0-cpu-only-x86_64-linux.nix, unused ? import ../")),
    Mutation("CUDA in a recipe for Apple", "l1/darwin-mps", swap("cudaSupport = false", "cudaSupport = true")),
    # --- from nixpkgs' own expression of torch ---
    Mutation("Triton without CUDA", GPU, with_argument("_tritonEffective = nixpkgs_pinned.python3Packages.triton.override { cudaSupport = false; };")),
    Mutation("ROCm beside CUDA", GPU, with_argument("rocmSupport = true;")),
    Mutation("MAGMA as a shared library", GPU, with_argument("magma-cuda-static = nixpkgs_pinned.magma-cuda;")),
    Mutation("Vulkan", GPU, with_argument("vulkanSupport = true;")),
    Mutation("no oneDNN", GPU, with_argument("mklDnnSupport = false;")),
    Mutation("PTX beside the code of the GPU", GPU, swap("gpuTargets = [ gpuArchSM ]", 'gpuTargets = [ "${gpuArchSM}+PTX" ]')),
    Mutation("the driver not found at run time", GPU,
             wrap_attrs('nativeBuildInputs = builtins.filter (p: p.name != "auto-add-driver-runpath-hook") oldAttrs.nativeBuildInputs;')),
    Mutation("no code for many processes on several sockets", CPU,
             wrap_attrs('buildInputs = builtins.filter (p: p.name != "numactl-0") oldAttrs.buildInputs;')),
    Mutation("NVRTC not found at run time", GPU, wrap_attrs("extraRunpaths = [ ];")),
    Mutation("Triton for the build alone", GPU,
             wrap_attrs('propagatedBuildInputs = builtins.filter (p: p.pname or "" != "triton") oldAttrs.propagatedBuildInputs;')),
    Mutation("errors of nixpkgs' compiler flags back", GPU, wrap_attrs('env = (oldAttrs.env or { }) // { NIX_CFLAGS_COMPILE = ""; };')),
    Mutation("the CPU of the builder", CPU, in_hook('export NIX_CFLAGS_COMPILE="-march=native"')),
    Mutation("no sandbox", GPU, wrap_attrs("__noChroot = true;")),
    Mutation("another cuDNN by an overlay", GPU,
             swap("magma = prev.magma.overrideAttrs", 'cudnn_frontend = null;\n        cudaPackages = prev.cudaPackages.overrideScope (_: p: { cudnn = p.cudnn.overrideAttrs { preFixup = "rm -r $out"; }; });\n        magma = prev.magma.overrideAttrs')),
    Mutation("MAGMA patch reverted", GPU, swap("(final.fetchpatch {", "(final.fetchpatch {\n              revert = true;")),
    Mutation("the shell goes on after errors", CPU, in_hook("set +e")),
    Mutation("files that nobody else can read", GPU, in_hook("umask 077")),
    Mutation("nproc replaced in the shell", GPU, swap("    cores=", "    nproc() { echo 1; }\n    cores=")),
    Mutation("the licence of another program", CPU, swap("    platforms = [", "    license = nixpkgs_pinned.lib.licenses.issl;\n    platforms = [")),
    Mutation("another Python's interpreter as an argument", CPU, swap("cudaSupport = false;", "cudaSupport = false;\n  python = nixpkgs_pinned.python312;")),
    Mutation("an attribute that Nix warns of", CPU, swap("requiredSystemFeatures = ", 'requiredSystemFeatures = builtins.trace "warning: this is old" ')),
    # --- the newer expression of nixpkgs ---
    Mutation("patches cleared with the newest torch", f"{NEWEST}/sm120-avx2", before_hook("patches = [];")),
    Mutation("no NCCL by the env of the newest torch", f"{NEWEST}/sm90-avx2", before_hook('env = oldAttrs.env // { USE_NCCL = "0"; };')),
    Mutation("no NCCL by a CMake flag of the newest torch", f"{NEWEST}/sm80-avx2", before_hook('cmakeFlags = oldAttrs.cmakeFlags ++ [ "-DUSE_NCCL=OFF" ];')),
    Mutation("another build version of the newest torch", f"{NEWEST}/sm75-avx2", before_hook('env = oldAttrs.env // { PYTORCH_BUILD_VERSION = "2.12.0"; };')),
    Mutation("CUDA in CMake of the newest torch", f"{NEWEST}/cpu-avx2", swap("-DUSE_CUDA=OFF", "-DUSE_CUDA=ON")),
    # --- matrix.toml, and files that recipes read ---
    Mutation("a companion of another PyTorch", MATRIX, both(
        swap('version = "0.25.0"', 'version = "0.24.1"'), swap('rev = "v0.25.0"', 'rev = "v0.24.1"'),
        swap('hash_of = "v0.25.0"', 'hash_of = "v0.24.1"'), swap("sha256-oktJ", "sha256-pktJ"))),
    Mutation("the hash of another revision", MATRIX, swap('hash_of = "v2.10.0"', 'hash_of = "v2.9.1"')),
    Mutation("a rule that applies to nothing", MATRIX, with_rules(("cuda", '"<12.0"', "0"))),
    Mutation("two rules that contradict each other", MATRIX, with_rules(("kind", '["gpu"]', "0"), ("gpu", '["sm120"]', "1"))),
)  # fmt: skip

BY_HAND: dict[str, tuple[Callable[[str], str], str, bool]] = {
    # an edit of a recipe, the check, and whether a recipe that is written by hand builds with it
    "all cores": (gone("export NIX_BUILD_CORES"), "hook-jobs", True),
    "a limit ten times as high": (swap("cores < 32 ? cores : 32", "cores < 320 ? cores : 320"), "hook-jobs", False),
    "no CUPTI": (cut(r"    substituteInPlace cmake/Dependencies.*?INCLUDE_DIR\}'\n"), "hook-files", True),
    "CUPTI by half": (swap("extras/CUPTI/lib64 $ENV{CUPTI_LIBRARY_DIR}", "extras/CUPTI/lib64"), "hook-files", False),
    "no condition for Codegen": (cut(r"    sed -i '/\"121a\"/.*?fi\n"), "hook-files", True),
    "conditions of all codes": (swap('/"121a"/,/endif()/s', "s"), "hook-files", False),
    "a stub by name": (swap("include(\"''${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake\")", "list(REMOVE_ITEM CMAKE_MODULE_PATH x)\n    include(FindCUDAToolkit)"), "hook-files", True),
    "a stub that includes itself": (swap("''${CMAKE_ROOT}/Modules", "''${CMAKE_CURRENT_LIST_DIR}"), "hook-files", False),
}  # fmt: skip
