#!/bin/bash
# The builder of all packages of the model of nixpkgs, for builds with real compilers. For PyTorch
# it runs the phases and hooks of the recipe as stdenv does, on the project beside this script.
# $1: folder with bin/ccache.
export PATH=/usr/local/cuda/bin:/usr/bin:/bin
export HOME=/homeless-shelter

case $name in
*-pytorch210-* | *-seed-*) ;;
source)
    mkdir "$out"
    cp "$2"/* "$out"
    exit
    ;;
*)
    for output in $outputs; do
        [ "${outputHashMode-}" = flat ] && echo "$name" >"${!output}" && continue
        mkdir -p "${!output}/bin"
        for program in cmake ninja; do ln -s "/usr/bin/$program" "${!output}/bin/"; done
        ln -s /usr/bin/python3 "${!output}/bin/python3.13"
        ln -s "$1/bin/ccache" "${!output}/bin/"
    done
    exit
    ;;
esac

set -e -o pipefail
shopt -s inherit_errexit
runHook() {
    eval "${!1-}"
    [ "$1" != preBuild ] || seconds configured
}

# Set $1 to the CPU seconds of all programs so far; wall time depends on what else is running
seconds() {
    times >/build/times # not in a subshell, which has no programs yet
    local used
    used=$(tail -n 1 /build/times | sed 's/[ms]/ /g' | awk '{ print 60 * ($1 + $3) + $2 + $4 }')
    printf -v "$1" %s "$used"
}

# The compiler wrapper of nixpkgs, and its hook for reproducible builds
mkdir /build/wrapper
for compiler in gcc g++; do
    printf '#!/bin/sh\nexec /usr/bin/%s $NIX_CFLAGS_COMPILE "$@"\n' $compiler >/build/wrapper/$compiler
    chmod +x /build/wrapper/$compiler
done
export CC=/build/wrapper/gcc CXX=/build/wrapper/g++ NVCC_PREPEND_FLAGS="-ccbin /build/wrapper/g++"
seed=${NIX_OUTPATH_USED_AS_RANDOM_SEED:-$out}
seed=${seed##*/}
export NIX_CFLAGS_COMPILE="${NIX_CFLAGS_COMPILE-} -isystem /usr/local/cuda/include -frandom-seed=${seed:0:10}"
: "${NIX_BUILD_CORES:=1}"
export NIX_BUILD_CORES

cp -r "$src" /build/source
chmod -R u+w /build/source
cd /build/source
runHook preConfigure
seconds began
if [ -n "${buildPhase-}" ]; then
    eval "$buildPhase"
else
    runHook preBuild
    ninja -C build -j "$NIX_BUILD_CORES"
    runHook postBuild
fi
seconds ended
echo "compiled in $(echo "$ended $configured" | awk '{ print $1 - $2 }') s of CPU time"
echo "built in $(echo "$ended $began" | awk '{ print $1 - $2 }') s of CPU time"
[ -n "${phases-}" ] && exit
for output in $outputs; do mkdir -p "${!output}"; done
cp build/*.so "$out"
cd build
find . -name '*.o' | sort | xargs sha256sum >"$out/objects"
