# PyTorch 2.10.0 optimized for NVIDIA Blackwell (SM120: RTX 5090) + AVX-512
# Package name: pytorch-python313-cuda13_0-sm120-avx512

{ pkgs ? import <nixpkgs> {} }:

let
  # Import nixpkgs at a specific revision with CUDA 13.0 and PyTorch 2.10.0
  nixpkgs_pinned = import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/6a030d535719c5190187c4cec156f335e95e3211.tar.gz";
  }) {
    config = {
      allowUnfree = true;
      allowBroken = true;
      cudaSupport = true;
    };
    overlays = [
      # Overlay 1: Use CUDA 13.0
      (final: prev: { cudaPackages = final.cudaPackages_13; })

      # Overlay 2: Patch MAGMA for CUDA 13.0 compatibility
      (final: prev: {
        magma = prev.magma.overrideAttrs (oldAttrs: {
          patches = (oldAttrs.patches or []) ++ [
            (final.fetchpatch {
              name = "cuda-13.0-clockrate-fix.patch";
              url = "https://github.com/icl-utk-edu/magma/commit/235aefb7b064954fce09d035c69907ba8a87cbcd.patch";
              hash = "sha256-i9InbxD5HtfonB/GyF9nQhFmok3jZ73RxGcIciGBGvU=";
            })
          ];
        });
      })

      # Overlay 3: Upgrade PyTorch to 2.10.0
      (final: prev: {
        python3Packages = prev.python3Packages.override {
          overrides = pfinal: pprev: {
            torch = pprev.torch.overrideAttrs (oldAttrs: rec {
              version = "2.10.0";
              src = prev.fetchFromGitHub {
                owner = "pytorch";
                repo = "pytorch";
                rev = "v${version}";
                hash = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ=";
                fetchSubmodules = true;
              };
              patches = [];
            });
          };
        };
      })
    ];
  };

  # GPU target: SM120 (Blackwell, RTX 5090)
  gpuArchNum = "120";
  gpuArchSM = "12.0";

  # CPU optimization: AVX-512
  cpuFlags = [
    "-mavx512f"
    "-mavx512dq"
    "-mavx512vl"
    "-mavx512bw"
    "-mfma"
  ];

in
  (nixpkgs_pinned.python3Packages.torch.override {
    cudaSupport = true;
    gpuTargets = [ gpuArchSM ];
  }).overrideAttrs (oldAttrs: {
    pname = "pytorch210-python313-cuda13_0-sm120-avx512";
    patches = [];

    ninjaFlags = [ "-j32" ];
    requiredSystemFeatures = [ "big-parallel" ];

    cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
      "-DTORCH_BUILD_VERSION=2.10.0"
      "-DCMAKE_CUDA_FLAGS=-I/build/cccl-compat"
      "-DCUDA_VERSION=13.0"
    ];

    postPatch = (oldAttrs.postPatch or "") + ''
      # Delegating stub: finds the real module behind this folder
      cat > cmake/Modules/FindCUDAToolkit.cmake << 'EOF'
      if(NOT CUDAToolkit_FOUND)
        set(_save_path ''${CMAKE_MODULE_PATH})
        list(REMOVE_ITEM CMAKE_MODULE_PATH "''${CMAKE_CURRENT_LIST_DIR}")
        include(FindCUDAToolkit)
        set(CMAKE_MODULE_PATH ''${_save_path})
      endif()
      EOF
    '';

    preConfigure = (oldAttrs.preConfigure or "") + ''
      export CXXFLAGS="${nixpkgs_pinned.lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
      export CFLAGS="${nixpkgs_pinned.lib.concatStringsSep " " cpuFlags} $CFLAGS"
      export MAX_JOBS=32

      export PYTORCH_BUILD_VERSION=2.10.0
      echo "2.10.0" > version.txt

      mkdir -p /build/cccl-compat/cccl
      for lib in cuda cub thrust nv; do
        ln -sf ${nixpkgs_pinned.cudaPackages.cuda_cccl}/include/$lib /build/cccl-compat/cccl/$lib
      done
      export CXXFLAGS="-I/build/cccl-compat $CXXFLAGS"
      export CFLAGS="-I/build/cccl-compat $CFLAGS"
      export CUDAFLAGS="-I/build/cccl-compat $CUDAFLAGS"

      echo "GPU target: ${gpuArchSM} (SM${gpuArchNum}), CPU: AVX-512"
    '';

    passthru = oldAttrs.passthru // {
      gpuArch = gpuArchSM;
      cpuISA = "avx512";
      blasProvider = "cublas";
    };

    meta = oldAttrs.meta // {
      description = "PyTorch 2.10.0 for RTX 5090 (SM120) with AVX-512 and CUDA 13.0";
      longDescription = ''
        GPU: Blackwell (SM120), CPU: AVX-512, CUDA: 13.0, PyTorch: 2.10.0
        Driver: 580 or newer. Hardware: RTX 5090 on x86-64.
      '';
      platforms = [ "x86_64-linux" ];
    };
  })
