#!/bin/bash
# Make the root folder of Debian 13 for `nox -s whole`: root.sh FOLDER.
# As root, with debootstrap, pip and unzip; 4 GB, minutes.
set -euo pipefail
root=$(realpath -m "${1:?name the folder: root.sh FOLDER}")
# The mounts below end with this process
[ "${2-}" = apart ] || exec unshare --mount bash "$(realpath "$0")" "$root" apart

debian=http://deb.debian.org/debian
debootstrap --variant=minbase --include=ca-certificates trixie "$root" $debian
echo "deb-src $debian trixie main" >>"$root/etc/apt/sources.list"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get -q update
# ccache and dpkg-dev for the build; OpenBLAS on OpenMP, which alone may be the BLAS of all; pip's
# build for wheels; then what PyTorch imports when it runs
inside apt-get install -qy --no-install-recommends ccache dpkg-dev libopenblas-openmp-dev \
    python3-build python3-wheel python3-pip \
    python3-filelock python3-fsspec python3-jinja2 python3-networkx python3-sympy
mkdir -p "$root/src"
inside sh -c 'cd /src && apt-get source -q pytorch'
inside apt-get build-dep -qy --no-install-recommends -Ppkg.nodoc,nocheck pytorch

# MKL of PyPI; a program links to names without version
mkl=$root/opt/mkl-dev
mkdir "$root/opt/wheels" "$mkl"
python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux1_x86_64 \
    --dest "$root/opt/wheels" mkl==2024.2.2 mkl-devel==2024.2.2 mkl-include==2024.2.2
for wheel in "$root"/opt/wheels/*.whl; do unzip -q "$wheel" '*.data/data/*' -d "$root/opt/wheels"; done
cp -r "$root"/opt/wheels/*.data/data/lib "$root"/opt/wheels/*.data/data/include "$mkl"
rm -r "$root/opt/wheels"
for library in "$mkl"/lib/*.so.2; do ln -s "${library##*/}" "${library%.2}"; done
