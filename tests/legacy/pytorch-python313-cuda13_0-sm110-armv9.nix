# PyTorch for DRIVE Thor (SM110) with ARMv9
# Package name: pytorch-python313-cuda13_0-sm110-armv9

{ pkgs ? import <nixpkgs> {} }:

let
  nixpkgs_pinned = import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    config = {
      allowUnfree = true;
      cudaSupport = true;
    };
  };

  gpuArchNum = "110";
  gpuArchSM = "11.0";
  cpuFlags = [ "-march=armv9-a+sve2" ];

  # MAGMA does not compile with CUDA 13.0
  filterMagma = builtins.filter (p: !(nixpkgs_pinned.lib.hasPrefix "magma" (p.pname or "")));
in
  (nixpkgs_pinned.python3Packages.pytorch.override {
    cudaSupport = true;
    gpuTargets = [ gpuArchSM ];
  }).overrideAttrs (oldAttrs: {
    pname = "pytorch-python313-cuda13_0-sm110-armv9";
    buildInputs = filterMagma oldAttrs.buildInputs;
    cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [ "-DUSE_MAGMA=OFF" ];
    preConfigure = (oldAttrs.preConfigure or "") + ''
      export CXXFLAGS="${nixpkgs_pinned.lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
      export CFLAGS="${nixpkgs_pinned.lib.concatStringsSep " " cpuFlags} $CFLAGS"
      export USE_MAGMA=0
      export MAX_JOBS=32
    '';
    meta = oldAttrs.meta // {
      description = "PyTorch for DRIVE Thor (SM110) with ARMv9";
      platforms = [ "aarch64-linux" ];
    };
  })
