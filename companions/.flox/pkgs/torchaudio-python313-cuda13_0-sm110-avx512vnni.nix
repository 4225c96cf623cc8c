# torchaudio-python313-cuda13_0-sm110-avx512vnni
#
# TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm110-avx512vnni.
# Status impossible-host: no x86_64-linux machine has SM110: DRIVE Thor, Jetson Thor on aarch64-linux only.
#
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:8728e4aca3306a754fa993065c51ef2c6cffebdc2bada5819e4f27f17a539654

{ pkgs ? import <nixpkgs> {}

  # The nixpkgs revision of all recipes of this release. A caller that evaluates many recipes can
  # pass one import to all recipes with the same system and overlays; Flox passes nothing.
, nixpkgs_pinned ? import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/6a030d535719c5190187c4cec156f335e95e3211.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 13.0 for every package that uses CUDA
      # nixpkgs compiles NCCL for a default list of architectures that lacks this one.
      (final: prev: {
        cudaPackages = final.cudaPackages_13.overrideScope (_: cprev: {
          nccl = cprev.nccl.overrideAttrs (oldAttrs: let arch = "110"; in {
            makeFlags = (oldAttrs.makeFlags or []) ++ [
              "NVCC_GENCODE=-gencode=arch=compute_${arch},code=sm_${arch}"
            ];
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
            "-DCMAKE_CUDA_ARCHITECTURES=110"
            "-DMIN_ARCH=1100"
          ];
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

  # The derivation of the variant, unchanged in every attribute: with another one, PyTorch would be
  # compiled once more. A recipe that is written by hand may have fewer arguments.
, torch_of_variant ? (
    let recipe = import ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm110-avx512vnni.nix;
    in recipe (builtins.intersectAttrs (builtins.functionArgs recipe) { inherit pkgs nixpkgs_pinned; })
  )
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: AVX-512 with VNNI (Cascade Lake, Ice Lake, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512vnni" "-mfma" ];
in
# Two stages. override comes first: nixpkgs takes the compiler, CUDA and the GPU architectures from
# torch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torchaudio.override {
  torch = torch_of_variant;
}).overrideAttrs (oldAttrs: {
  pname = "torchaudio-python313-cuda13_0-sm110-avx512vnni";

  # Version, source and patches change together: those of nixpkgs are for another PyTorch.
  version = "2.10.0";
  src = nixpkgs_pinned.fetchFromGitHub {
    owner = "pytorch";
    repo = "audio";
    rev = "v2.10.0";
    hash = "sha256-b1sjHVFXdNFDbdtXWSM2KisSRE/8IbzJI4rvzYQ4UMg=";
    fetchSubmodules = false;
  };
  patches = oldAttrs.patches or [];

  # Nix sends the build only to builders with these features.
  requiredSystemFeatures = [ "big-parallel" ];

  # Whoever installs the package needs torch itself, which is one of several outputs.
  propagatedBuildInputs = (oldAttrs.propagatedBuildInputs or []) ++ [ torch_of_variant.out ];

  preConfigure = (oldAttrs.preConfigure or "") + ''

    # CPU instruction set
    export CXXFLAGS="${lib.concatStringsSep " " cpuFlags} $CXXFLAGS"
    export CFLAGS="${lib.concatStringsSep " " cpuFlags} $CFLAGS"

    # Limit of parallel compile jobs: PyTorch's build extension reads MAX_JOBS, CMake and Ninja get
    # NIX_BUILD_CORES, where 0 means all cores.
    export MAX_JOBS=32
    cores=''${NIX_BUILD_CORES:-0}
    if [ "$cores" -eq 0 ]; then cores=$(nproc); fi
    export NIX_BUILD_CORES=$((cores < 32 ? cores : 32))

    # The GPU architectures of the variant
    export TORCH_CUDA_ARCH_LIST="${torch_of_variant.gpuArch}"

    echo "TorchAudio 2.10.0 for pytorch-python313-cuda13_0-sm110-avx512vnni"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = "11.0";
    cpuISA = "avx512vnni";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm110-avx512vnni (no machine has that pair of GPU and CPU)";
    longDescription = ''
      GPU: SM110, compute capability 11.0
      CPU: AVX-512 with VNNI (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512vnni -mfma)
      CUDA: 13.0
      PyTorch: 2.10.0, Python 3.13
      Driver: NVIDIA 580.65.06 or newer
      Hardware: no x86_64-linux machine has SM110: DRIVE Thor, Jetson Thor on aarch64-linux only
    '';
    platforms = [ "x86_64-linux" ];
  };
})
