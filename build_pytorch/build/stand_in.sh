#!/bin/sh
# Stands in for every builder of the model of nixpkgs. $1 is the folder of scenarios: what a build
# of PyTorch prints and leaves behind is decided there, by variant or in default.sh.
PATH=/usr/bin:/bin
export PATH
control=$1

make_outputs() {
    for output in $outputs; do
        eval "path=\$$output"
        if [ "${outputHashMode-}" = flat ]; then # a patch, say, is a file
            echo "$name" >"$path"
        else
            mkdir -p "$path"
            echo "$name" >"$path/name"
        fi
    done
}

case $name in
*-pytorch210-*) ;;
*)
    make_outputs
    exit
    ;;
esac

variant=${name#*pytorch210-python313-}
version=${name##*-}
variant=${variant%-"$version"}
variant=${variant#cuda13_0-}
case $variant in
cpu-*) cuda=OFF ;;
*) cuda=ON ;;
esac
# sm120 is 12.0: what nixpkgs puts into TORCH_CUDA_ARCH_LIST
number=${variant%%-*}
number=${number#sm}
capability=${number%?}.${number#"${number%?}"}
steps=60

phases() {
    echo "Running phase: unpackPhase"
    echo "unpacking source archive /nix/store/zzz-source"
    echo "Running phase: patchPhase"
    echo "Running phase: configurePhase"
    echo "Running phase: buildPhase"
    echo "Building wheel torch-$version"
    echo "-- Building version $version"
}

# The command line of CMake, as setup.py prints it.
configure() {
    echo "cmake -GNinja -DBUILD_PYTHON=True -DTORCH_CUDA_ARCH_LIST=$capability -DUSE_CUDA=1 /build"
}

# A message of CMake, by a command: message or $2.
warning() {
    echo "CMake Error at cmake/public/cuda.cmake:31 (${2:-message}):"
    echo "  $1"
}

# The lines in which PyTorch's CMake says what it is going to build.
summary() {
    if [ "$cuda" = ON ]; then
        echo "-- Found CUDA: /nix/store/zzz-cuda-merged-13.0 (found version \"13.0\")"
        echo "-- PyTorch: CUDA detected: 13.0"
        echo "-- Autodetected CUDA architecture(s):  ${capability}"
        echo "-- Added CUDA NVCC flags for: -gencode;arch=compute_${number},code=sm_${number}"
    fi
    echo "--"
    echo "-- ******** Summary ********"
    echo "-- General:"
    echo "--   CMake version         : 4.1.2"
    echo "--   C++ compiler          : /nix/store/zzz-gcc-wrapper-14.3.0/bin/g++"
    echo "--   TORCH_VERSION         : 2.10.0"
    echo "--   BUILD_PYTHON          : True"
    echo "--   BUILD_SHARED_LIBS     : ON"
    echo "--   USE_CUDA              : $cuda"
    if [ "$cuda" = ON ]; then
        echo "--     Split CUDA          : "
        echo "--     CUDA static link    : OFF"
        echo "--     USE_CUDNN           : ON"
        echo "--     CUDA version        : 13.0"
        echo "--     USE_FLASH_ATTENTION : ON"
        echo "--     NVCC                : /nix/store/zzz-cuda-merged-13.0/bin/nvcc"
    fi
    echo "--   USE_ROCM              : OFF"
    echo "--   USE_MKLDNN            : 1"
    echo "--   USE_NCCL              : $cuda"
    echo "-- Configuring done (31.4s)"
}

ninja() {
    step=1
    while [ "$step" -le "$steps" ]; do
        echo "[$step/$steps] Building CXX object caffe2/CMakeFiles/torch_cpu.dir/file_$step.cpp.o"
        ${pause:+sleep "$pause"}
        step=$((step + 1))
    done
}

finish() {
    echo "Running phase: installPhase"
    make_outputs
    echo "Running phase: fixupPhase"
}

# Wait until a test has set a marker, or another builder: at most a minute.
await() {
    left=1200
    until [ -e "$control/$1" ]; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || exit 1
        sleep 0.05
    done
}

good() {
    phases
    summary
    ninja
    finish
}

if [ -e "$control/$variant.sh" ]; then
    . "$control/$variant.sh"
else
    . "$control/default.sh"
fi
