#!/bin/bash
# The builder of all packages of the model of nixpkgs: Debian's programs, which Nix's sandbox shows
# below /usr, and python.sh (the first argument). PyTorch is built as nixpkgs' stdenv does it, with
# the phases and hooks of the recipe.
set -e -o pipefail
shopt -s inherit_errexit
export PATH=/usr/bin:/bin HOME=/homeless-shelter LC_ALL=C.UTF-8 SOURCE_DATE_EPOCH=315532800

case $name in
*-pytorch26-*) ;;
pytorch-v*-with-submodules | source)
    cp -r --no-preserve=mode,ownership /src/pytorch-*/ "$out"
    # What Debian changed: the version has +debian, and ninja writes commands in place of objects
    sed -i "s/ + '+debian'//" "$out/tools/generate_torch_version.py"
    sed -i "s/, '-v'\]/]/" "$out/tools/setup_helpers/cmake.py"
    # and the libraries found each other in /usr/lib, where another libtorch may be
    sed -i -e 's/^set(CMAKE_INSTALL_RPATH "")/set(CMAKE_INSTALL_RPATH "${_rpath_portable_origin}")/' \
        -e 's/^set(CMAKE_INSTALL_RPATH_USE_LINK_PATH FALSE)/set(CMAKE_INSTALL_RPATH_USE_LINK_PATH TRUE)/' \
        "$out/cmake/Dependencies.cmake"
    # Debian's sources lack a generated file
    cd "$out/torch/csrc/jit/serialization"
    flatc --cpp --gen-mutable --scoped-enums mobile_bytecode.fbs
    exit
    ;;
disable-cmake-mkl-rpath.patch)
    cat >"$out" <<'PATCH'
--- a/cmake/public/mkl.cmake
+++ b/cmake/public/mkl.cmake
@@ -20,3 +20,0 @@
-set_property(
-  TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES
-  ${MKL_ROOT}/lib ${MKL_ROOT}/lib/intel64 ${MKL_ROOT}/lib/intel64_win ${MKL_ROOT}/lib/win-x64)
PATCH
    exit
    ;;
python3-*)
    mkdir -p "$out/bin"
    cp "$1" "$out/bin/python3.13"
    exit
    ;;
patch-for-torch-*.patch) # nixpkgs' own for this version: here none
    : >"$out"
    exit
    ;;
*)
    for output in $outputs; do
        mkdir -p "${!output}"
        ln -s /usr/bin "${!output}/bin"
        case $name in
        # CUDA as cuda.sh made it, where each package has the files of all
        cuda*-cuda_cccl-*)
            ln -s /opt/cuda/include/cccl "${!output}/include"
            ;;
        cuda*)
            rm "${!output}/bin"
            ln -s /opt/cuda/* "${!output}"
            ;;
        openblas-*)
            ln -s /usr/lib/x86_64-linux-gnu/openblas-openmp "${!output}/lib"
            ln -s /usr/include/x86_64-linux-gnu/openblas-openmp "${!output}/include"
            ;;
        mkl-*)
            ln -s /opt/mkl-dev/lib /opt/mkl-dev/include "${!output}/"
            ;;
        esac
    done
    exit
    ;;
esac

# As stdenv's, with the two options that the hooks use
substituteInPlace() {
    local file=$1 text
    text=$(cat "$file" && echo x)
    shift
    while [ $# -gt 0 ]; do
        if [[ $text != *"$2"* ]]; then
            case $1 in
            --replace-fail) local level=ERROR ;;
            --replace-warn) local level=WARNING ;;
            *) echo "substituteInPlace: no option $1" >&2 && return 1 ;;
            esac
            echo "substituteStream() in derivation $name: $level: pattern $2 doesn't match anything in file '$file'" >&2
            [ "$level" = WARNING ] || return 1
        fi
        text=${text//"$2"/"$3"}
        shift 3
    done
    printf %s "${text%x}" >"$file"
}
runHook() { eval "${!1-}"; }
# Nix shows the phase of its structured log where a builder writes it there
showPhase() {
    echo "Running phase: $1"
    printf '@nix { "action": "setPhase", "phase": "%s" }\n' "$1" >&"${NIX_LOG_FD:-2}"
}
phase() {
    [[ -z ${phases-} || " $phases " == *" $1 "* ]] || return 0
    showPhase "$1"
    export >"$NIX_BUILD_TOP/env-vars"
    if [ -n "${!1-}" ]; then eval "${!1}"; else "default_$1"; fi
}

# The compiler wrapper of nixpkgs, and its hook for reproducible builds
mkdir "$NIX_BUILD_TOP/wrapper"
for compiler in gcc g++; do
    printf '#!/bin/sh\nexec /usr/bin/%s $NIX_CFLAGS_COMPILE "$@"\n' $compiler >"$NIX_BUILD_TOP/wrapper/$compiler"
    chmod +x "$NIX_BUILD_TOP/wrapper/$compiler"
done
export CC=$NIX_BUILD_TOP/wrapper/gcc CXX=$NIX_BUILD_TOP/wrapper/g++
seed=${NIX_OUTPATH_USED_AS_RANDOM_SEED:-$out}
seed=${seed##*/}
export NIX_CFLAGS_COMPILE="${NIX_CFLAGS_COMPILE-} -frandom-seed=${seed:0:10}"

# The hooks of nixpkgs that bring CMake to its inputs, and nvcc to the compiler
for input in $nativeBuildInputs $buildInputs; do
    [[ ${input##*/} == *-cuda* ]] || continue
    CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH:+$CMAKE_PREFIX_PATH:}$input
    [[ ${input##*/} != *-cuda_nvcc-* ]] || PATH=$input/bin:$PATH
    export CMAKE_PREFIX_PATH CUDAHOSTCXX=$CXX
    export NVCC_PREPEND_FLAGS="--compiler-bindir=$CXX -Xfatbin=-compress-all"
done

default_unpackPhase() {
    echo "unpacking source archive $src"
    cp -r --no-preserve=mode "$src" source
    cd source
}
default_patchPhase() {
    runHook prePatch
    for patch in $patches; do
        echo "applying patch $patch"
        [ ! -s "$patch" ] || patch -p1 <"$patch"
    done
    runHook postPatch
}
default_configurePhase() {
    runHook preConfigure
    runHook postConfigure
}
default_buildPhase() {
    runHook preBuild
    echo "Executing pypaBuildPhase"
    echo "Creating a wheel..."
    /usr/bin/python3 -m build --no-isolation --skip-dependency-check --outdir dist/ --wheel
    echo "Finished creating a wheel..."
    runHook postBuild
}
default_installPhase() {
    runHook preInstall
    echo "Executing pypaInstallPhase"
    local site=$out/lib/python3.13/site-packages
    /usr/bin/python3 -m pip --disable-pip-version-check install --no-deps --no-index \
        --no-cache-dir --no-compile --target "$site" dist/*.whl
    [ ! -d "$site/bin" ] || mv "$site/bin" "$out/bin"
    mkdir "$dist"
    cp dist/*.whl "$dist"
    runHook postInstall
}
default_fixupPhase() {
    runHook preFixup
    for output in $outputs; do
        find "${!output}" -name '*.so*' -type f -exec strip -S {} +
    done
    runHook postFixup
}
default_pythonImportsCheckPhase() {
    echo "Check whether the following modules can be imported: $pythonImportsCheck"
    cd "$out"
    export PYTHONPATH=$out/lib/python3.13/site-packages
    for module in $pythonImportsCheck; do /usr/bin/python3 -c "import $module"; done
}

cd "$NIX_BUILD_TOP"
for each in unpackPhase patchPhase configurePhase buildPhase installPhase fixupPhase pythonImportsCheckPhase; do
    phase "$each"
done
