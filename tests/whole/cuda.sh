#!/bin/bash
# Put CUDA 13.0 into a root folder that root.sh made, for the GPU variants of `nox -s whole`:
# cuda.sh FOLDER. NVIDIA's wheels of PyPI: 2 GB to fetch, 3 GB on disk, minutes. With cpp, gcc, pip
# and unzip.
set -euo pipefail
root=$(realpath -m "${1:?name the folder: cuda.sh FOLDER}")
lacks() { echo "cuda.sh: $1" >&2; exit 2; }
[ -x "$root/usr/bin/gcc" ] || lacks "$root: no root folder that root.sh made"
[ ! -e "$root/opt/cuda" ] || lacks "$root/opt/cuda: exists"
for program in cpp gcc python3 unzip; do
    [ -n "$(command -v $program)" ] || lacks "$program: not in PATH"
done
[ "$(df --output=avail -k "$root" | tail -n 1)" -gt 8000000 ] || lacks "$root: less than 8 GB free"

# The compiler and the runtime, then the libraries that torch's wheels for CUDA 13.0 have. cuDNN's
# frontend and CUTLASS are headers that Debian took out of PyTorch's sources: 3.4.1, because 2.6.0
# does not compile with 3.5.1; and frontend 1.15, because 1.8 does not compile with CUDA 13.
wheels=(
    nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
    nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96 nvidia-cuda-culibos==13.0.85
    nvidia-cuda-cupti==13.0.85 nvidia-nvtx==13.0.85 nvidia-cuda-profiler-api==13.0.85
    nvidia-cublas==13.0.2.14 nvidia-cufft==12.0.0.61 nvidia-curand==10.4.0.35
    nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-nvjitlink==13.0.88
    nvidia-cuda-nvrtc==13.0.88 nvidia-cufile==1.15.1.6 nvidia-nvml-dev==13.0.87
    nvidia-cudnn-cu13==9.19.0.56 nvidia-nccl-cu13==2.28.9 nvidia-cusparselt-cu13==0.8.0
    nvidia-cudnn-frontend==1.15.0 nvidia-cutlass==3.4.1.0
)
platforms=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
for minor in $(seq 12 39); do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done # pip wants each

temporary=$(mktemp -d "$root/opt/cuda.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
python3 -m pip download -q --no-deps --only-binary=:all: "${platforms[@]}" --python-version 3.12 \
    --dest "$temporary/wheels" "${wheels[@]}"
for wheel in "$temporary"/wheels/*.whl; do unzip -qo "$wheel" -d "$temporary/files"; done
cuda=$temporary/files/nvidia/cu13
for part in cudnn nccl cusparselt; do
    cp -al "$temporary/files/nvidia/$part/"{include,lib} "$cuda"
done
chmod +x "$cuda"/bin/* "$cuda"/nvvm/bin/*
ln -sfn lib "$cuda/lib64"
cd "$cuda/lib"
for library in *.so.*; do ln -s "$library" "${library%%.so.*}.so"; done # programs link to these
# No wheel has libcuda.so, which comes with the driver: a library with every name of cuda.h
mkdir stubs
cpp -I../include ../include/cuda.h | grep -oE '\bcu[A-Z]\w* *\(' | tr -d ' (' | sort -u |
    sed 's/.*/int &(void) { return 999; }/' |
    gcc -w -shared -fPIC -Wl,-soname,libcuda.so.1 -o stubs/libcuda.so -xc -
mkdir "$root/opt/cudnn-frontend"
mv "$temporary/files/include" "$root/opt/cudnn-frontend"
mv "$temporary/files/cutlass_library/source" "$root/opt/cutlass"
chmod -R a+rX "$cuda" "$root/opt/cutlass" "$root/opt/cudnn-frontend"
mv "$cuda" "$root/opt/cuda"
