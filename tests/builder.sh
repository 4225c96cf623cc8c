#!/bin/sh
# The builder of the model of nixpkgs in tests. $1 is a folder of scenarios: VARIANT.sh or default.sh
# there decides what a build of PyTorch prints, does and leaves behind.
export PATH=/usr/bin:/bin
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

case $name in *-pytorch210-*) ;; *) make_outputs && exit ;; esac

variant=${name#*pytorch210-python313-}
variant=${variant%-*}
variant=${variant#cuda13_0-}
case $variant in cpu-*) cuda=OFF ;; *) cuda=ON ;; esac
number=${variant%%-*}
number=${number#sm}
capability=${number%?}.${number#"${number%?}"} # sm120 is 12.0
steps=60

phases() {
    for phase in unpackPhase patchPhase configurePhase buildPhase; do
        echo "Running phase: $phase"
    done
}

# The command line of CMake, as setup.py prints it.
configure() {
    echo "cmake -GNinja -DBUILD_PYTHON=True -DTORCH_CUDA_ARCH_LIST=$capability -DUSE_CUDA=1 /build"
}

# What PyTorch's CMake says that it is going to build.
summary() {
    if [ "$cuda" = ON ]; then
        echo "-- Added CUDA NVCC flags for: -gencode;arch=compute_$number,code=sm_$number"
    fi
    echo "-- ******** Summary ********"
    echo "--   TORCH_VERSION         : 2.10.0"
    echo "--   USE_CUDA              : $cuda"
    echo "--   USE_ROCM              : OFF"
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

# Wait until a test or another builder has set a marker: at most a minute.
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

if [ -e "$control/$variant.sh" ]; then . "$control/$variant.sh"; else . "$control/default.sh"; fi
