# PyTorch for RTX 5090 (SM120) with AVX
# Package name: pytorch-python313-cuda13_0-sm120-avx

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

  gpuArchNum = "120";
  gpuArchSM = "12.0";
  cpuFlags = [ "-mavx" ];

  # MAGMA does not compile with CUDA 13.0
  filterMagma = builtins.filter (p: !(nixpkgs_pinned.lib.hasPrefix "magma" (p.pname or "")));
in
  (nixpkgs_pinned.python3Packages.pytorch.override {
    cudaSupport = true;
    gpuTargets = [ gpuArchSM ];
  }).overrideAttrs (oldAttrs: {
    pname = "pytorch-python313-cuda13_0-sm120-avx";
    buildInputs = filterMagma oldAttrs.buildInputs;
    cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [ "-DUSE_MAGMA=OFF" ];
    preConfigure = (oldAttrs.preConfigure or "") + ''
      export CXXFLAGS="${nixpkgs_pinned.lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
      export CFLAGS="${nixpkgs_pinned.lib.concatStringsSep " " cpuFlags} $CFLAGS"
      export USE_MAGMA=0
      export MAX_JOBS=32
    '';
    meta = oldAttrs.meta // {
      description = "PyTorch for RTX 5090 (SM120) with AVX";
      platforms = [ "x86_64-linux" ];
    };
  })
