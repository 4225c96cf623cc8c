#!/bin/sh
# The Python of the model of nixpkgs. In Nix's sandbox it is Debian's. Outside, where programs of
# this machine run it, it is that of the root folder, which then shows /proc, /dev, /sys, /tmp and
# the folder of the store; the mounts end with the program.
[ ! -x /usr/bin/python3.13 ] || exec /usr/bin/python3.13 "$@"
: "${BUILD_PYTORCH_DEBIAN:?}" "${BUILD_PYTORCH_WHOLE:?}"
exec unshare --mount sh -ec '
    for folder in /proc /dev /sys /tmp "$BUILD_PYTORCH_WHOLE"; do
        mkdir -p "$BUILD_PYTORCH_DEBIAN$folder"
        mount --rbind "$folder" "$BUILD_PYTORCH_DEBIAN$folder"
    done
    exec chroot "$BUILD_PYTORCH_DEBIAN" /usr/bin/python3.13 "$@"' sh "$@"
