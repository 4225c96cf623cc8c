# torchaudio-python313-cuda13_0-sm86-avx512bf16
#
# TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm86-avx512bf16.
#
# Generated from matrix.toml by templates/companion.nix.j2; edit those and run `invoke phase2`.
# Digest of this file, with zeros in place of it: sha256:d408ee7ba95725e919c2765ad317987d1b7cf1bcb62e549549af5f60ff85a04c

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
      (final: prev: { cudaPackages = final.cudaPackages_13; })

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
    let recipe = import ../../../.flox/pkgs/pytorch-python313-cuda13_0-sm86-avx512bf16.nix;
    in recipe (builtins.intersectAttrs (builtins.functionArgs recipe) { inherit pkgs nixpkgs_pinned; })
  )
}:

let
  inherit (nixpkgs_pinned) lib;

  # CPU: AVX-512 with BF16 (Cooper Lake, Sapphire Rapids, Zen 4 and newer)
  cpuFlags = [ "-mavx512f" "-mavx512dq" "-mavx512vl" "-mavx512bw" "-mavx512bf16" "-mfma" ];
in
# Two stages. override comes first: nixpkgs takes the compiler, CUDA and the GPU architectures from
# torch. overrideAttrs changes single attributes.
(nixpkgs_pinned.python3Packages.torchaudio.override {
  torch = torch_of_variant;
}).overrideAttrs (oldAttrs: {
  pname = "torchaudio-python313-cuda13_0-sm86-avx512bf16";

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

    echo "TorchAudio 2.10.0 for pytorch-python313-cuda13_0-sm86-avx512bf16"
    echo "CPU flags: ${lib.concatStringsSep " " cpuFlags}"
    echo "Jobs:      $NIX_BUILD_CORES"
  '';

  passthru = (oldAttrs.passthru or {}) // {
    gpuArch = "8.6";
    cpuISA = "avx512bf16";
  };

  meta = (oldAttrs.meta or {}) // {
    description = "TorchAudio 2.10.0 for the PyTorch 2.10.0 of pytorch-python313-cuda13_0-sm86-avx512bf16";
    longDescription = ''
      GPU: SM86, compute capability 8.6
      CPU: AVX-512 with BF16 (-mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512bf16 -mfma)
      CUDA: 13.0
      PyTorch: 2.10.0, Python 3.13
      Driver: NVIDIA 580.65.06 or newer
      Hardware: RTX 30 series, RTX 2050, A40, A16, A10, A2, RTX A series on x86_64-linux, where the CPU has AVX-512 with BF16
    '';
    platforms = [ "x86_64-linux" ];
  };
})
