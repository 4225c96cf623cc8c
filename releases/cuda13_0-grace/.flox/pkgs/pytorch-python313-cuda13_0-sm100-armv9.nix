# pytorch-python313-cuda13_0-sm100-armv9
#
# PyTorch 2.10.0 with CUDA 13.0 for SM100 GPUs (GB200)
# and CPUs with ARMv9 with SVE2, on Python 3.13.
#
# Generated from matrix.toml by templates/gpu.nix.j2; edit those and run `invoke phase3`.
# Digest of this file, with zeros in place of it: sha256:281be37b9b6f1ac8b4871def759d4a9c9281fa2f5a03499091dfd71d170435b9

{ pkgs ? import <nixpkgs> {}

  # The nixpkgs revision of all recipes of this release. A caller that evaluates many recipes can
  # pass one import to all recipes with the same system and overlays; Flox passes nothing.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/6a030d535719c5190187c4cec156f335e95e3211.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "aarch64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 13.0 for every package that uses CUDA
      # nixpkgs compiles NCCL for a default list of architectures; this one is for one.
      (final: prev: {
        cudaPackages = final.cudaPackages_13.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "100"; in {
            makeFlags = (oldAttrs.makeFlags or []) ++ [
              "NVCC_GENCODE=-gencode=arch=compute_${arch},code=sm_${arch}"
            ];
            env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
          });
        });
      })

      # Overlay 2: CUDA 13.0 dropped cudaDeviceProp.clockRate, which this MAGMA reads.
      # torch links a static MAGMA, which nixpkgs makes from this package.
      (final: prev: {
        magma = prev.magma.overrideAttrs (oldAttrs: {
          patches = (oldAttrs.patches or []) ++ [
            (final.fetchpatch {
              name = "cuda-13.0-clockrate-fix.patch";
              url = "https://github.com/icl-utk-edu/magma/commit/235aefb7b064954fce09d035c69907ba8a87cbcd.patch";
              hash = "sha256-i9InbxD5HtfonB/GyF9nQhFmok3jZ73RxGcIciGBGvU=";
            })
          ];
          # For this architecture, as with NCCL; MAGMA writes 75 as 750.
          cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
            "-DCMAKE_CUDA_ARCHITECTURES=100"
            "-DMIN_ARCH=1000"
          ];
          env = (oldAttrs.env or {}) // { NVCC_APPEND_FLAGS = "-compress-mode=size"; };
        });
      })

      # Overlay 3: PyTorch 2.10.0 in place of the version that nixpkgs ships
      (final: prev: {
        python3Packages = prev.python3Packages.override {
          overrides = pfinal: pprev: {
            torch = pprev.torch.overrideAttrs (oldAttrs: {
              version = "2.10.0";
              src = prev.fetchFromGitHub {
                owner = "pytorch";
                repo = "pytorch";
                rev = "v2.10.0";
                hash = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ=";
                fetchSubmodules = true;
              };
              patches = [];
            });
          };
        };
      })
    ];
  }
}:

let
  inherit (nixpkgs_pinned) lib;
  inherit (nixpkgs_pinned.cudaPackages) cuda_cccl;

  # GPU: Blackwell (GB200)
  # gpuTargets needs the dotted form; sm_NN evaluates as well, and the build fails hours later.
  gpuArchNum = "100";
  gpuArchSM = "10.0";

  # CPU: ARMv9 with SVE2 (Neoverse N2, Neoverse V2 (Grace, Graviton4), Neoverse V3AE (Thor), Cortex-X925 (GB10))
  cpuFlags = [ "-march=armv9-a+sve2" ];
in
# Two stages. override changes the arguments of torch, from which nixpkgs chooses CUDA and its
# libraries; without it the result is a CPU-only PyTorch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ gpuArchSM ];
}).overrideAttrs (oldAttrs: {
  pname = "pytorch210-python313-cuda13_0-sm100-armv9";

  # The patches of nixpkgs are for the version that it ships. The overlay clears them as well.
  patches = [];

  # Only Ninja's own build phase reads this, and this build does not run it. preConfigure sets the
  # limit that takes effect.
  ninjaFlags = [ "-j32" ];

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

  # Only a build that Nix configures with CMake reads these. PyTorch's setup.py runs CMake itself
  # and reads environment variables, so preConfigure sets those that exist.
  cmakeFlags = (oldAttrs.cmakeFlags or []) ++ [
    "-DTORCH_BUILD_VERSION=2.10.0"
    "-DCMAKE_CUDA_FLAGS=-I/build/cccl-compat"
    "-DCUDA_VERSION=13.0"
  ];

  preConfigure = (oldAttrs.preConfigure or "") + ''

    # CPU instruction set
    export CXXFLAGS="${lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
    export CFLAGS="${lib.concatStringsSep " " cpuFlags} $CFLAGS"

    # Limit of parallel compile jobs. nixpkgs sets MAX_JOBS to NIX_BUILD_CORES after this hook, so
    # NIX_BUILD_CORES is limited as well; 0 means all cores. PyTorch prefers MAX_JOBS to
    # CMAKE_BUILD_PARALLEL_LEVEL; without either, Ninja uses all cores.
    export MAX_JOBS=32
    cores=''${NIX_BUILD_CORES:-0}
    if [ "$cores" -eq 0 ]; then cores=$(nproc); fi
    export NIX_BUILD_CORES=$((cores < 32 ? cores : 32))

    # Nix runs builds on a pseudo-terminal, where Ninja writes its steps over each other; Nix drops
    # such lines. So the log has each step in a line.
    export TERM=dumb

    # nixpkgs exports the version that it ships. Headers of another version do not compile with it:
    # they compare TORCH_FEATURE_VERSION with their own version.
    export PYTORCH_BUILD_VERSION=2.10.0
    echo "2.10.0" > version.txt

    # device code that is compressed for size is a fifth smaller; drivers for CUDA 13 read it
    export NVCC_APPEND_FLAGS=-compress-mode=size

    # With CUDA 13, PyTorch includes <cccl/cuda/std/utility>; nixpkgs has these headers in
    # include/cuda. Link them to where PyTorch looks. CUDAFLAGS has the effect of CMAKE_CUDA_FLAGS.
    mkdir -p "$NIX_BUILD_TOP/cccl-compat/cccl"
    for library in cuda cub thrust nv; do
      ln -sfn ${cuda_cccl}/include/$library "$NIX_BUILD_TOP/cccl-compat/cccl/$library"
    done
    export CXXFLAGS="-I$NIX_BUILD_TOP/cccl-compat $CXXFLAGS"
    export CFLAGS="-I$NIX_BUILD_TOP/cccl-compat $CFLAGS"
    export CUDAFLAGS="-I$NIX_BUILD_TOP/cccl-compat $CUDAFLAGS"

    echo "PyTorch 2.10.0, CUDA 13.0, Python 3.13"
    echo "GPU:       SM${gpuArchNum} (${gpuArchSM})"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  # nixpkgs replaces texts of the version that it ships. One that this version does not have is a
  # warning in the log and not the end of the build.
  postPatch = builtins.replaceStrings [ "--replace-fail" ] [ "--replace-warn" ] (oldAttrs.postPatch or "") + ''

    # PyTorch installs this file, which nixpkgs removes, and gloo finds CUDA through it. It includes
    # CMake's module of the same name by its path: by name, it could find itself again.
    cat > cmake/Modules/FindCUDAToolkit.cmake <<'CMAKE'
    if(NOT CUDAToolkit_FOUND)
      include("''${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake")
    endif()
    CMAKE

    # PyTorch looks for CUPTI in the folder of the toolkit; nixpkgs has it in a package of its own
    # and exports the paths of that package. Without CUPTI, torch.profiler records no CUDA activity.
    substituteInPlace cmake/Dependencies.cmake \
      --replace-fail 'extras/CUPTI/lib64' 'extras/CUPTI/lib64 $ENV{CUPTI_LIBRARY_DIR}' \
      --replace-fail 'extras/CUPTI/include' 'extras/CUPTI/include $ENV{CUPTI_INCLUDE_DIR}'
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = gpuArchSM;
    cpuISA = "armv9";
    blasProvider = "cublas";
    # Packages that are built with torch compile for these. torch's own list is that of nixpkgs.
    cudaCapabilities = [ gpuArchSM ];
    # Those of nixpkgs test the torch of its package set, which they would compile.
    tests = { };
  };

  meta = (oldAttrs.meta or {}) // {
    description = "PyTorch 2.10.0 with CUDA 13.0 for SM100 (GB200) and ARMv9 with SVE2";
    longDescription = ''
      GPU: SM100, compute capability 10.0 (Blackwell)
      CPU: ARMv9 with SVE2 (-march=armv9-a+sve2)
      CPUs: Neoverse N2, Neoverse V2 (Grace, Graviton4), Neoverse V3AE (Thor), Cortex-X925 (GB10); not Graviton3 (SVE without SVE2)
      CUDA: 13.0, with cuBLAS and MAGMA
      PyTorch: 2.10.0, Python 3.13
      Driver: NVIDIA 580.65.06 or newer
      Hardware: GB200 on aarch64-linux, where the CPU has ARMv9 with SVE2
    '';
    platforms = [ "aarch64-linux" ];
    # nixpkgs marks torch as broken on a CUDA that its own version does not support. Its other
    # reasons still count.
    broken = lib.any lib.id (lib.attrValues (
      removeAttrs oldAttrs.passthru.brokenConditions [ "Unsupported CUDA version" ]
    ));
  };
})
