# release.nix
#
# All variants and companions as one attribute set, by package name: for Hydra, nix-eval-jobs,
# nix-fast-build and `nix-build release.nix -A pytorch-python313-cuda13_0-sm120-avx2`.
# Each distinct import of nixpkgs is evaluated once and passed to all recipes that contain it.
#
# Generated from matrix.toml by templates/release.nix.j2; edit those and run `invoke phase5`.
# Digest of this file, with zeros in place of it: sha256:a742dbd6e172e27596d425ad4cf135406bba92b6d6c55dd55a4de505dd09ad20

{
  # Whether to include variants that no machine can run (status impossible-host)
  impossibleHosts ? true

  # Whether variants take the objects that they have in common from compiler caches (seeds), which
  # are derivations of this set, too. All results are other store paths than without it.
, share ? false

  # Whether nvcc writes the same objects in each build; only with share
, reproducibleCuda ? false
}:

let
  nixpkgs_cuda13_0_gpu_x86_64_linux = import (builtins.fetchTarball {
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
  };

  nixpkgs_cuda13_0_gpu_x86_64_linux_2 = import (builtins.fetchTarball {
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
  };

  nixpkgs_cuda13_0_gpu_aarch64_linux = import (builtins.fetchTarball {
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
  };

  nixpkgs_cuda13_0_gpu_aarch64_linux_2 = import (builtins.fetchTarball {
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
  };

  nixpkgs_cuda13_0_cpu_only_x86_64_linux = import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/6a030d535719c5190187c4cec156f335e95e3211.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
    };

    overlays = [
      # Overlay 1: PyTorch 2.10.0 in place of the version that nixpkgs ships
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
  };

  nixpkgs_cuda12_8_gpu_x86_64_linux = import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 12.8 for every package that uses CUDA
      (final: prev: { cudaPackages = final.cudaPackages_12_8; })
    ];
  };

  nixpkgs_cuda12_8_gpu_aarch64_linux = import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "aarch64-linux";

    config = {
      allowUnfree = true;
      cudaSupport = true;
    };

    overlays = [
      # Overlay 1: CUDA 12.8 for every package that uses CUDA
      (final: prev: { cudaPackages = final.cudaPackages_12_8; })
    ];
  };

  nixpkgs_cuda12_8_cpu_only_x86_64_linux = import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "x86_64-linux";

    config = {
      allowUnfree = true;
    };

    overlays = [
    ];
  };

  nixpkgs_cuda12_8_cpu_only_aarch64_linux = import (builtins.fetchTarball {
    url = "https://github.com/NixOS/nixpkgs/archive/fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3.tar.gz";
  }) {
    # Without it, nixpkgs takes the platform of the machine that evaluates. With it, any machine
    # can evaluate this recipe and send the build to a builder of this platform.
    system = "aarch64-linux";

    config = {
      allowUnfree = true;
    };

    overlays = [
    ];
  };

  nixpkgs_nightly_gpu_aarch64_linux = import (builtins.fetchTarball {
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

      # Overlay 3: PyTorch 2.10.0.dev20251015 in place of the version that nixpkgs ships
      (final: prev: {
        python3Packages = prev.python3Packages.override {
          overrides = pfinal: pprev: {
            torch = pprev.torch.overrideAttrs (oldAttrs: {
              version = "2.10.0.dev20251015";
              src = prev.fetchFromGitHub {
                owner = "pytorch";
                repo = "pytorch";
                rev = "6fc0ad22f0a07b6f38d138861c56a765d5a9bb02";
                hash = "";
                fetchSubmodules = true;
              };
              patches = [];
            });
          };
        };
      })
    ];
  };

  nixpkgs_nightly_gpu_aarch64_linux_2 = import (builtins.fetchTarball {
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
      # Four of its packages are those of barstoolbluz/build-cudatoolkit, or of a local checkout
      # of it in the environment variable CUDA_TOOLKIT_REPO. Such a build is not for publishing.
      (final: prev:
        let
          cuda = final.cudaPackages_13;
          local = builtins.getEnv "CUDA_TOOLKIT_REPO";
          fetched = builtins.fetchTarball {
            url = "https://github.com/barstoolbluz/build-cudatoolkit/archive/0696b3dbc42d8ec2de3e1edcc09ca9d1161db73a.tar.gz";
            sha256 = "";
          };
          repository =
            if local == "" then fetched
            else if builtins.substring 0 1 local == "/" then /. + local
            else throw "CUDA_TOOLKIT_REPO: ${local} is not an absolute path";
          files = repository + "/.flox/pkgs";
          # Each file gets the packages of this nixpkgs, and its CUDA without these replacements.
          call = final.newScope { cudaPackages = cuda; };
        in {
          cudaPackages = cuda.overrideScope (_: cprev: {
            cudatoolkit = call (files + "/cudatoolkit-13_0.nix") { };
            cudnn = call (files + "/cudnn-13_0.nix") { };
            nccl = call (files + "/nccl-13_0.nix") { };
            libcusparse_lt = call (files + "/libcusparse_lt-13_0.nix") { };
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
        });
      })

      # Overlay 3: PyTorch 2.10.0.dev20251015 in place of the version that nixpkgs ships
      (final: prev: {
        python3Packages = prev.python3Packages.override {
          overrides = pfinal: pprev: {
            torch = pprev.torch.overrideAttrs (oldAttrs: {
              version = "2.10.0.dev20251015";
              src = prev.fetchFromGitHub {
                owner = "pytorch";
                repo = "pytorch";
                rev = "6fc0ad22f0a07b6f38d138861c56a765d5a9bb02";
                hash = "";
                fetchSubmodules = true;
              };
              patches = [];
            });
          };
        };
      })
    ];
  };

  variants = {
    "pytorch-python313-cuda13_0-sm120-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm120-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm120-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm120-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm120-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm120-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm120-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm120-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm103-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm103-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm103-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm103-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm103-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm103-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm103-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm103-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm100-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm100-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm100-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm100-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm100-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm100-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm100-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm100-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm90-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm90-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm90-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm90-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm90-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm90-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm90-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm90-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm89-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm89-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm89-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm89-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm89-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm89-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm89-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm89-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm86-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm86-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm86-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm86-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm86-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm86-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm86-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm86-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm80-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm80-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm80-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm80-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm80-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm80-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm80-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm80-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm110-armv8_2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm110-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux; };
    "pytorch-python313-cuda13_0-sm110-armv9" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm110-armv9.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux; };
    "pytorch-python313-cuda13_0-sm121-armv8_2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm121-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux_2; };
    "pytorch-python313-cuda13_0-sm121-armv9" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm121-armv9.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux_2; };
    "pytorch-python313-cpu-avx2" = import ./.flox/pkgs/pytorch-python313-cpu-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; };
    "pytorch-python313-cpu-avx512" = import ./.flox/pkgs/pytorch-python313-cpu-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; };
    "pytorch-python313-cpu-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cpu-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; };
    "pytorch-python313-cpu-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cpu-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm120-avx" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm120-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm120-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm120-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm120-avx512" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm120-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm120-avx512bf16" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm120-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm120-avx512vnni" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm120-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm100-avx" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm100-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm100-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm100-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm100-avx512" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm100-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm100-avx512bf16" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm100-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm100-avx512vnni" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm100-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm90-avx" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm90-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm90-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm90-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm90-avx512" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm90-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm90-avx512bf16" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm90-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm90-avx512vnni" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm90-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm89-avx" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm89-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm89-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm89-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm89-avx512" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm89-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm89-avx512bf16" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm89-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm89-avx512vnni" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm89-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm86-avx" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm86-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm86-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm86-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm86-avx512" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm86-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm86-avx512bf16" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm86-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm86-avx512vnni" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm86-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm80-avx" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm80-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm80-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm80-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm80-avx512" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm80-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm80-avx512bf16" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm80-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm80-avx512vnni" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm80-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm75-avx" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm75-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm75-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm75-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm75-avx512" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm75-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm75-avx512bf16" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm75-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm75-avx512vnni" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm75-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm61-avx" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm61-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm61-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm61-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "pytorch-python313-cuda12_8-sm120-armv8_2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm120-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm120-armv9" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm120-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm100-armv8_2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm100-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm100-armv9" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm100-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm90-armv8_2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm90-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm90-armv9" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm90-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm89-armv8_2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm89-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm89-armv9" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm89-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm86-armv8_2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm86-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm86-armv9" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm86-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm80-armv8_2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm80-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm80-armv9" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm80-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm75-armv8_2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm75-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-cuda12_8-sm75-armv9" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-cuda12_8-sm75-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "pytorch-python313-torch28-cpu-avx2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-torch28-cpu-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; };
    "pytorch-python313-torch28-cpu-avx512" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-torch28-cpu-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; };
    "pytorch-python313-torch28-cpu-avx512bf16" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-torch28-cpu-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; };
    "pytorch-python313-torch28-cpu-avx512vnni" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-torch28-cpu-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; };
    "pytorch-python313-torch28-cpu-armv8_2" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-torch28-cpu-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_aarch64_linux; };
    "pytorch-python313-torch28-cpu-armv9" = import ./releases/cuda12_8/.flox/pkgs/pytorch-python313-torch28-cpu-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_aarch64_linux; };
    "pytorch-python313-cuda13_0-sm121-armv9-nightly" = import ./releases/nightly/.flox/pkgs/pytorch-python313-cuda13_0-sm121-armv9-nightly.nix { nixpkgs_pinned = nixpkgs_nightly_gpu_aarch64_linux; };
    "pytorch-python313-cuda13_0-sm121-armv9-nightly-wrapper" = import ./releases/nightly/.flox/pkgs/pytorch-python313-cuda13_0-sm121-armv9-nightly-wrapper.nix { nixpkgs_pinned = nixpkgs_nightly_gpu_aarch64_linux_2; };
  };

  impossible = {
    "pytorch-python313-cuda13_0-sm121-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm121-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm121-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm121-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm121-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm121-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm121-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm121-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "pytorch-python313-cuda13_0-sm110-avx2" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm110-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; };
    "pytorch-python313-cuda13_0-sm110-avx512" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm110-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; };
    "pytorch-python313-cuda13_0-sm110-avx512bf16" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm110-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; };
    "pytorch-python313-cuda13_0-sm110-avx512vnni" = import ./.flox/pkgs/pytorch-python313-cuda13_0-sm110-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; };
  };

  plain = variants // (if impossibleHosts then impossible else {});

  # The seeds, each with the variant from whose recipe it is made, and the seeds of each variant
  seeds = {
    "seed-cuda13_0-x86_64-linux-avx2" = { kind = "cxx"; package = "pytorch-python313-cuda13_0-sm120-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-sm120" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm120-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-avx512" = { kind = "cxx"; package = "pytorch-python313-cuda13_0-sm103-avx512"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-avx512bf16" = { kind = "cxx"; package = "pytorch-python313-cuda13_0-sm100-avx512bf16"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-avx512vnni" = { kind = "cxx"; package = "pytorch-python313-cuda13_0-sm90-avx512vnni"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-sm121" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm121-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-sm110" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm110-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux_2; };
    "seed-cuda13_0-x86_64-linux-sm103" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm103-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-sm100" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm100-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-sm90" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm90-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-sm89" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm89-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-sm86" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm86-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-x86_64-linux-sm80" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm80-avx2"; nixpkgs = nixpkgs_cuda13_0_gpu_x86_64_linux; };
    "seed-cuda13_0-aarch64-linux-armv8_2" = { kind = "cxx"; package = "pytorch-python313-cuda13_0-sm110-armv8_2"; nixpkgs = nixpkgs_cuda13_0_gpu_aarch64_linux; };
    "seed-cuda13_0-aarch64-linux-sm110" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm110-armv9"; nixpkgs = nixpkgs_cuda13_0_gpu_aarch64_linux; };
    "seed-cuda13_0-aarch64-linux-armv9" = { kind = "cxx"; package = "pytorch-python313-cuda13_0-sm121-armv9"; nixpkgs = nixpkgs_cuda13_0_gpu_aarch64_linux_2; };
    "seed-cuda13_0-aarch64-linux-sm121" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm121-armv9"; nixpkgs = nixpkgs_cuda13_0_gpu_aarch64_linux_2; };
    "seed-cuda12_8-x86_64-linux-avx" = { kind = "cxx"; package = "pytorch-python313-cuda12_8-sm120-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-sm120" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm120-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-avx2" = { kind = "cxx"; package = "pytorch-python313-cuda12_8-sm100-avx2"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-avx512" = { kind = "cxx"; package = "pytorch-python313-cuda12_8-sm90-avx512"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-avx512bf16" = { kind = "cxx"; package = "pytorch-python313-cuda12_8-sm89-avx512bf16"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-avx512vnni" = { kind = "cxx"; package = "pytorch-python313-cuda12_8-sm86-avx512vnni"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-sm100" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm100-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-sm90" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm90-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-sm89" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm89-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-sm86" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm86-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-sm80" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm80-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-sm75" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm75-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-x86_64-linux-sm61" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm61-avx"; nixpkgs = nixpkgs_cuda12_8_gpu_x86_64_linux; };
    "seed-cuda12_8-aarch64-linux-armv8_2" = { kind = "cxx"; package = "pytorch-python313-cuda12_8-sm120-armv8_2"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-cuda12_8-aarch64-linux-sm120" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm120-armv9"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-cuda12_8-aarch64-linux-armv9" = { kind = "cxx"; package = "pytorch-python313-cuda12_8-sm100-armv9"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-cuda12_8-aarch64-linux-sm100" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm100-armv9"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-cuda12_8-aarch64-linux-sm90" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm90-armv9"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-cuda12_8-aarch64-linux-sm89" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm89-armv9"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-cuda12_8-aarch64-linux-sm86" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm86-armv9"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-cuda12_8-aarch64-linux-sm80" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm80-armv9"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-cuda12_8-aarch64-linux-sm75" = { kind = "cuda"; package = "pytorch-python313-cuda12_8-sm75-armv9"; nixpkgs = nixpkgs_cuda12_8_gpu_aarch64_linux; };
    "seed-nightly-aarch64-linux-armv9" = { kind = "cxx"; package = "pytorch-python313-cuda13_0-sm121-armv9-nightly"; nixpkgs = nixpkgs_nightly_gpu_aarch64_linux; };
    "seed-nightly-aarch64-linux-sm121" = { kind = "cuda"; package = "pytorch-python313-cuda13_0-sm121-armv9-nightly"; nixpkgs = nixpkgs_nightly_gpu_aarch64_linux; };
  };

  seedsOf = {
    "pytorch-python313-cuda13_0-sm120-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm120" ];
    "pytorch-python313-cuda13_0-sm120-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm120" ];
    "pytorch-python313-cuda13_0-sm120-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm120" ];
    "pytorch-python313-cuda13_0-sm120-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm120" ];
    "pytorch-python313-cuda13_0-sm121-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm121" ];
    "pytorch-python313-cuda13_0-sm121-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm121" ];
    "pytorch-python313-cuda13_0-sm121-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm121" ];
    "pytorch-python313-cuda13_0-sm121-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm121" ];
    "pytorch-python313-cuda13_0-sm110-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm110" ];
    "pytorch-python313-cuda13_0-sm110-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm110" ];
    "pytorch-python313-cuda13_0-sm110-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm110" ];
    "pytorch-python313-cuda13_0-sm110-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm110" ];
    "pytorch-python313-cuda13_0-sm103-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm103" ];
    "pytorch-python313-cuda13_0-sm103-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm103" ];
    "pytorch-python313-cuda13_0-sm103-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm103" ];
    "pytorch-python313-cuda13_0-sm103-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm103" ];
    "pytorch-python313-cuda13_0-sm100-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm100" ];
    "pytorch-python313-cuda13_0-sm100-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm100" ];
    "pytorch-python313-cuda13_0-sm100-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm100" ];
    "pytorch-python313-cuda13_0-sm100-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm100" ];
    "pytorch-python313-cuda13_0-sm90-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm90" ];
    "pytorch-python313-cuda13_0-sm90-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm90" ];
    "pytorch-python313-cuda13_0-sm90-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm90" ];
    "pytorch-python313-cuda13_0-sm90-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm90" ];
    "pytorch-python313-cuda13_0-sm89-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm89" ];
    "pytorch-python313-cuda13_0-sm89-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm89" ];
    "pytorch-python313-cuda13_0-sm89-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm89" ];
    "pytorch-python313-cuda13_0-sm89-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm89" ];
    "pytorch-python313-cuda13_0-sm86-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm86" ];
    "pytorch-python313-cuda13_0-sm86-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm86" ];
    "pytorch-python313-cuda13_0-sm86-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm86" ];
    "pytorch-python313-cuda13_0-sm86-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm86" ];
    "pytorch-python313-cuda13_0-sm80-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" "seed-cuda13_0-x86_64-linux-sm80" ];
    "pytorch-python313-cuda13_0-sm80-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" "seed-cuda13_0-x86_64-linux-sm80" ];
    "pytorch-python313-cuda13_0-sm80-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" "seed-cuda13_0-x86_64-linux-sm80" ];
    "pytorch-python313-cuda13_0-sm80-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" "seed-cuda13_0-x86_64-linux-sm80" ];
    "pytorch-python313-cuda13_0-sm110-armv8_2" = [ "seed-cuda13_0-aarch64-linux-armv8_2" "seed-cuda13_0-aarch64-linux-sm110" ];
    "pytorch-python313-cuda13_0-sm110-armv9" = [ "seed-cuda13_0-aarch64-linux-armv9" "seed-cuda13_0-aarch64-linux-sm110" ];
    "pytorch-python313-cuda13_0-sm121-armv8_2" = [ "seed-cuda13_0-aarch64-linux-armv8_2" "seed-cuda13_0-aarch64-linux-sm121" ];
    "pytorch-python313-cuda13_0-sm121-armv9" = [ "seed-cuda13_0-aarch64-linux-armv9" "seed-cuda13_0-aarch64-linux-sm121" ];
    "pytorch-python313-cpu-avx2" = [ "seed-cuda13_0-x86_64-linux-avx2" ];
    "pytorch-python313-cpu-avx512" = [ "seed-cuda13_0-x86_64-linux-avx512" ];
    "pytorch-python313-cpu-avx512bf16" = [ "seed-cuda13_0-x86_64-linux-avx512bf16" ];
    "pytorch-python313-cpu-avx512vnni" = [ "seed-cuda13_0-x86_64-linux-avx512vnni" ];
    "pytorch-python313-cuda12_8-sm120-avx" = [ "seed-cuda12_8-x86_64-linux-avx" "seed-cuda12_8-x86_64-linux-sm120" ];
    "pytorch-python313-cuda12_8-sm120-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" "seed-cuda12_8-x86_64-linux-sm120" ];
    "pytorch-python313-cuda12_8-sm120-avx512" = [ "seed-cuda12_8-x86_64-linux-avx512" "seed-cuda12_8-x86_64-linux-sm120" ];
    "pytorch-python313-cuda12_8-sm120-avx512bf16" = [ "seed-cuda12_8-x86_64-linux-avx512bf16" "seed-cuda12_8-x86_64-linux-sm120" ];
    "pytorch-python313-cuda12_8-sm120-avx512vnni" = [ "seed-cuda12_8-x86_64-linux-avx512vnni" "seed-cuda12_8-x86_64-linux-sm120" ];
    "pytorch-python313-cuda12_8-sm100-avx" = [ "seed-cuda12_8-x86_64-linux-avx" "seed-cuda12_8-x86_64-linux-sm100" ];
    "pytorch-python313-cuda12_8-sm100-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" "seed-cuda12_8-x86_64-linux-sm100" ];
    "pytorch-python313-cuda12_8-sm100-avx512" = [ "seed-cuda12_8-x86_64-linux-avx512" "seed-cuda12_8-x86_64-linux-sm100" ];
    "pytorch-python313-cuda12_8-sm100-avx512bf16" = [ "seed-cuda12_8-x86_64-linux-avx512bf16" "seed-cuda12_8-x86_64-linux-sm100" ];
    "pytorch-python313-cuda12_8-sm100-avx512vnni" = [ "seed-cuda12_8-x86_64-linux-avx512vnni" "seed-cuda12_8-x86_64-linux-sm100" ];
    "pytorch-python313-cuda12_8-sm90-avx" = [ "seed-cuda12_8-x86_64-linux-avx" "seed-cuda12_8-x86_64-linux-sm90" ];
    "pytorch-python313-cuda12_8-sm90-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" "seed-cuda12_8-x86_64-linux-sm90" ];
    "pytorch-python313-cuda12_8-sm90-avx512" = [ "seed-cuda12_8-x86_64-linux-avx512" "seed-cuda12_8-x86_64-linux-sm90" ];
    "pytorch-python313-cuda12_8-sm90-avx512bf16" = [ "seed-cuda12_8-x86_64-linux-avx512bf16" "seed-cuda12_8-x86_64-linux-sm90" ];
    "pytorch-python313-cuda12_8-sm90-avx512vnni" = [ "seed-cuda12_8-x86_64-linux-avx512vnni" "seed-cuda12_8-x86_64-linux-sm90" ];
    "pytorch-python313-cuda12_8-sm89-avx" = [ "seed-cuda12_8-x86_64-linux-avx" "seed-cuda12_8-x86_64-linux-sm89" ];
    "pytorch-python313-cuda12_8-sm89-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" "seed-cuda12_8-x86_64-linux-sm89" ];
    "pytorch-python313-cuda12_8-sm89-avx512" = [ "seed-cuda12_8-x86_64-linux-avx512" "seed-cuda12_8-x86_64-linux-sm89" ];
    "pytorch-python313-cuda12_8-sm89-avx512bf16" = [ "seed-cuda12_8-x86_64-linux-avx512bf16" "seed-cuda12_8-x86_64-linux-sm89" ];
    "pytorch-python313-cuda12_8-sm89-avx512vnni" = [ "seed-cuda12_8-x86_64-linux-avx512vnni" "seed-cuda12_8-x86_64-linux-sm89" ];
    "pytorch-python313-cuda12_8-sm86-avx" = [ "seed-cuda12_8-x86_64-linux-avx" "seed-cuda12_8-x86_64-linux-sm86" ];
    "pytorch-python313-cuda12_8-sm86-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" "seed-cuda12_8-x86_64-linux-sm86" ];
    "pytorch-python313-cuda12_8-sm86-avx512" = [ "seed-cuda12_8-x86_64-linux-avx512" "seed-cuda12_8-x86_64-linux-sm86" ];
    "pytorch-python313-cuda12_8-sm86-avx512bf16" = [ "seed-cuda12_8-x86_64-linux-avx512bf16" "seed-cuda12_8-x86_64-linux-sm86" ];
    "pytorch-python313-cuda12_8-sm86-avx512vnni" = [ "seed-cuda12_8-x86_64-linux-avx512vnni" "seed-cuda12_8-x86_64-linux-sm86" ];
    "pytorch-python313-cuda12_8-sm80-avx" = [ "seed-cuda12_8-x86_64-linux-avx" "seed-cuda12_8-x86_64-linux-sm80" ];
    "pytorch-python313-cuda12_8-sm80-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" "seed-cuda12_8-x86_64-linux-sm80" ];
    "pytorch-python313-cuda12_8-sm80-avx512" = [ "seed-cuda12_8-x86_64-linux-avx512" "seed-cuda12_8-x86_64-linux-sm80" ];
    "pytorch-python313-cuda12_8-sm80-avx512bf16" = [ "seed-cuda12_8-x86_64-linux-avx512bf16" "seed-cuda12_8-x86_64-linux-sm80" ];
    "pytorch-python313-cuda12_8-sm80-avx512vnni" = [ "seed-cuda12_8-x86_64-linux-avx512vnni" "seed-cuda12_8-x86_64-linux-sm80" ];
    "pytorch-python313-cuda12_8-sm75-avx" = [ "seed-cuda12_8-x86_64-linux-avx" "seed-cuda12_8-x86_64-linux-sm75" ];
    "pytorch-python313-cuda12_8-sm75-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" "seed-cuda12_8-x86_64-linux-sm75" ];
    "pytorch-python313-cuda12_8-sm75-avx512" = [ "seed-cuda12_8-x86_64-linux-avx512" "seed-cuda12_8-x86_64-linux-sm75" ];
    "pytorch-python313-cuda12_8-sm75-avx512bf16" = [ "seed-cuda12_8-x86_64-linux-avx512bf16" "seed-cuda12_8-x86_64-linux-sm75" ];
    "pytorch-python313-cuda12_8-sm75-avx512vnni" = [ "seed-cuda12_8-x86_64-linux-avx512vnni" "seed-cuda12_8-x86_64-linux-sm75" ];
    "pytorch-python313-cuda12_8-sm61-avx" = [ "seed-cuda12_8-x86_64-linux-avx" "seed-cuda12_8-x86_64-linux-sm61" ];
    "pytorch-python313-cuda12_8-sm61-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" "seed-cuda12_8-x86_64-linux-sm61" ];
    "pytorch-python313-cuda12_8-sm120-armv8_2" = [ "seed-cuda12_8-aarch64-linux-armv8_2" "seed-cuda12_8-aarch64-linux-sm120" ];
    "pytorch-python313-cuda12_8-sm120-armv9" = [ "seed-cuda12_8-aarch64-linux-armv9" "seed-cuda12_8-aarch64-linux-sm120" ];
    "pytorch-python313-cuda12_8-sm100-armv8_2" = [ "seed-cuda12_8-aarch64-linux-armv8_2" "seed-cuda12_8-aarch64-linux-sm100" ];
    "pytorch-python313-cuda12_8-sm100-armv9" = [ "seed-cuda12_8-aarch64-linux-armv9" "seed-cuda12_8-aarch64-linux-sm100" ];
    "pytorch-python313-cuda12_8-sm90-armv8_2" = [ "seed-cuda12_8-aarch64-linux-armv8_2" "seed-cuda12_8-aarch64-linux-sm90" ];
    "pytorch-python313-cuda12_8-sm90-armv9" = [ "seed-cuda12_8-aarch64-linux-armv9" "seed-cuda12_8-aarch64-linux-sm90" ];
    "pytorch-python313-cuda12_8-sm89-armv8_2" = [ "seed-cuda12_8-aarch64-linux-armv8_2" "seed-cuda12_8-aarch64-linux-sm89" ];
    "pytorch-python313-cuda12_8-sm89-armv9" = [ "seed-cuda12_8-aarch64-linux-armv9" "seed-cuda12_8-aarch64-linux-sm89" ];
    "pytorch-python313-cuda12_8-sm86-armv8_2" = [ "seed-cuda12_8-aarch64-linux-armv8_2" "seed-cuda12_8-aarch64-linux-sm86" ];
    "pytorch-python313-cuda12_8-sm86-armv9" = [ "seed-cuda12_8-aarch64-linux-armv9" "seed-cuda12_8-aarch64-linux-sm86" ];
    "pytorch-python313-cuda12_8-sm80-armv8_2" = [ "seed-cuda12_8-aarch64-linux-armv8_2" "seed-cuda12_8-aarch64-linux-sm80" ];
    "pytorch-python313-cuda12_8-sm80-armv9" = [ "seed-cuda12_8-aarch64-linux-armv9" "seed-cuda12_8-aarch64-linux-sm80" ];
    "pytorch-python313-cuda12_8-sm75-armv8_2" = [ "seed-cuda12_8-aarch64-linux-armv8_2" "seed-cuda12_8-aarch64-linux-sm75" ];
    "pytorch-python313-cuda12_8-sm75-armv9" = [ "seed-cuda12_8-aarch64-linux-armv9" "seed-cuda12_8-aarch64-linux-sm75" ];
    "pytorch-python313-torch28-cpu-avx2" = [ "seed-cuda12_8-x86_64-linux-avx2" ];
    "pytorch-python313-torch28-cpu-avx512" = [ "seed-cuda12_8-x86_64-linux-avx512" ];
    "pytorch-python313-torch28-cpu-avx512bf16" = [ "seed-cuda12_8-x86_64-linux-avx512bf16" ];
    "pytorch-python313-torch28-cpu-avx512vnni" = [ "seed-cuda12_8-x86_64-linux-avx512vnni" ];
    "pytorch-python313-torch28-cpu-armv8_2" = [ "seed-cuda12_8-aarch64-linux-armv8_2" ];
    "pytorch-python313-torch28-cpu-armv9" = [ "seed-cuda12_8-aarch64-linux-armv9" ];
    "pytorch-python313-cuda13_0-sm121-armv9-nightly" = [ "seed-nightly-aarch64-linux-armv9" "seed-nightly-aarch64-linux-sm121" ];
  };

  torches =
    if share
    then import ./build_pytorch/nix/sharing.nix { recipes = variants // impossible; inherit plain seeds seedsOf reproducibleCuda; }
    else plain;

  # Packages for the PyTorch of one variant each
  companions = {
    "torchvision-python313-cuda13_0-sm120-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm120-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm120-avx2"; };
    "torchaudio-python313-cuda13_0-sm120-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm120-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm120-avx2"; };
    "torchvision-python313-cuda13_0-sm120-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm120-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm120-avx512"; };
    "torchaudio-python313-cuda13_0-sm120-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm120-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm120-avx512"; };
    "torchvision-python313-cuda13_0-sm120-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm120-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm120-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm120-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm120-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm120-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm120-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm120-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm120-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm120-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm120-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm120-avx512vnni"; };
    "torchvision-python313-cuda13_0-sm103-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm103-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm103-avx2"; };
    "torchaudio-python313-cuda13_0-sm103-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm103-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm103-avx2"; };
    "torchvision-python313-cuda13_0-sm103-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm103-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm103-avx512"; };
    "torchaudio-python313-cuda13_0-sm103-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm103-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm103-avx512"; };
    "torchvision-python313-cuda13_0-sm103-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm103-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm103-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm103-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm103-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm103-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm103-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm103-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm103-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm103-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm103-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm103-avx512vnni"; };
    "torchvision-python313-cuda13_0-sm100-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm100-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm100-avx2"; };
    "torchaudio-python313-cuda13_0-sm100-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm100-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm100-avx2"; };
    "torchvision-python313-cuda13_0-sm100-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm100-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm100-avx512"; };
    "torchaudio-python313-cuda13_0-sm100-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm100-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm100-avx512"; };
    "torchvision-python313-cuda13_0-sm100-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm100-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm100-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm100-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm100-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm100-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm100-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm100-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm100-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm100-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm100-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm100-avx512vnni"; };
    "torchvision-python313-cuda13_0-sm90-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm90-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx2"; };
    "torchaudio-python313-cuda13_0-sm90-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm90-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx2"; };
    "torchvision-python313-cuda13_0-sm90-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm90-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx512"; };
    "torchaudio-python313-cuda13_0-sm90-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm90-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx512"; };
    "torchvision-python313-cuda13_0-sm90-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm90-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm90-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm90-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm90-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm90-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm90-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm90-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm90-avx512vnni"; };
    "torchvision-python313-cuda13_0-sm89-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm89-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm89-avx2"; };
    "torchaudio-python313-cuda13_0-sm89-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm89-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm89-avx2"; };
    "torchvision-python313-cuda13_0-sm89-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm89-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm89-avx512"; };
    "torchaudio-python313-cuda13_0-sm89-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm89-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm89-avx512"; };
    "torchvision-python313-cuda13_0-sm89-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm89-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm89-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm89-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm89-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm89-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm89-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm89-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm89-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm89-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm89-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm89-avx512vnni"; };
    "torchvision-python313-cuda13_0-sm86-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm86-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm86-avx2"; };
    "torchaudio-python313-cuda13_0-sm86-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm86-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm86-avx2"; };
    "torchvision-python313-cuda13_0-sm86-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm86-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm86-avx512"; };
    "torchaudio-python313-cuda13_0-sm86-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm86-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm86-avx512"; };
    "torchvision-python313-cuda13_0-sm86-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm86-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm86-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm86-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm86-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm86-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm86-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm86-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm86-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm86-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm86-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm86-avx512vnni"; };
    "torchvision-python313-cuda13_0-sm80-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm80-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm80-avx2"; };
    "torchaudio-python313-cuda13_0-sm80-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm80-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm80-avx2"; };
    "torchvision-python313-cuda13_0-sm80-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm80-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm80-avx512"; };
    "torchaudio-python313-cuda13_0-sm80-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm80-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm80-avx512"; };
    "torchvision-python313-cuda13_0-sm80-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm80-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm80-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm80-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm80-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm80-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm80-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm80-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm80-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm80-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm80-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm80-avx512vnni"; };
    "torchvision-python313-cuda13_0-sm110-armv8_2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm110-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-armv8_2"; };
    "torchaudio-python313-cuda13_0-sm110-armv8_2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm110-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-armv8_2"; };
    "torchvision-python313-cuda13_0-sm110-armv9" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm110-armv9.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-armv9"; };
    "torchaudio-python313-cuda13_0-sm110-armv9" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm110-armv9.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-armv9"; };
    "torchvision-python313-cuda13_0-sm121-armv8_2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm121-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-armv8_2"; };
    "torchaudio-python313-cuda13_0-sm121-armv8_2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm121-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-armv8_2"; };
    "torchvision-python313-cuda13_0-sm121-armv9" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm121-armv9.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-armv9"; };
    "torchaudio-python313-cuda13_0-sm121-armv9" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm121-armv9.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_aarch64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-armv9"; };
    "torchvision-python313-cpu-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cpu-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-cpu-avx2"; };
    "torchaudio-python313-cpu-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cpu-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-cpu-avx2"; };
    "torchvision-python313-cpu-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cpu-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-cpu-avx512"; };
    "torchaudio-python313-cpu-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cpu-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-cpu-avx512"; };
    "torchvision-python313-cpu-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cpu-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-cpu-avx512bf16"; };
    "torchaudio-python313-cpu-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cpu-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-cpu-avx512bf16"; };
    "torchvision-python313-cpu-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cpu-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-cpu-avx512vnni"; };
    "torchaudio-python313-cpu-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cpu-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-cpu-avx512vnni"; };
    "torchvision-python313-cuda12_8-sm120-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm120-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx"; };
    "torchaudio-python313-cuda12_8-sm120-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm120-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx"; };
    "torchvision-python313-cuda12_8-sm120-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm120-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx2"; };
    "torchaudio-python313-cuda12_8-sm120-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm120-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx2"; };
    "torchvision-python313-cuda12_8-sm120-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm120-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx512"; };
    "torchaudio-python313-cuda12_8-sm120-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm120-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx512"; };
    "torchvision-python313-cuda12_8-sm120-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm120-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx512bf16"; };
    "torchaudio-python313-cuda12_8-sm120-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm120-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx512bf16"; };
    "torchvision-python313-cuda12_8-sm120-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm120-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx512vnni"; };
    "torchaudio-python313-cuda12_8-sm120-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm120-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-avx512vnni"; };
    "torchvision-python313-cuda12_8-sm100-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm100-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx"; };
    "torchaudio-python313-cuda12_8-sm100-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm100-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx"; };
    "torchvision-python313-cuda12_8-sm100-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm100-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx2"; };
    "torchaudio-python313-cuda12_8-sm100-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm100-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx2"; };
    "torchvision-python313-cuda12_8-sm100-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm100-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx512"; };
    "torchaudio-python313-cuda12_8-sm100-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm100-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx512"; };
    "torchvision-python313-cuda12_8-sm100-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm100-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx512bf16"; };
    "torchaudio-python313-cuda12_8-sm100-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm100-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx512bf16"; };
    "torchvision-python313-cuda12_8-sm100-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm100-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx512vnni"; };
    "torchaudio-python313-cuda12_8-sm100-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm100-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-avx512vnni"; };
    "torchvision-python313-cuda12_8-sm90-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm90-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx"; };
    "torchaudio-python313-cuda12_8-sm90-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm90-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx"; };
    "torchvision-python313-cuda12_8-sm90-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm90-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx2"; };
    "torchaudio-python313-cuda12_8-sm90-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm90-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx2"; };
    "torchvision-python313-cuda12_8-sm90-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm90-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx512"; };
    "torchaudio-python313-cuda12_8-sm90-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm90-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx512"; };
    "torchvision-python313-cuda12_8-sm90-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm90-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx512bf16"; };
    "torchaudio-python313-cuda12_8-sm90-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm90-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx512bf16"; };
    "torchvision-python313-cuda12_8-sm90-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm90-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx512vnni"; };
    "torchaudio-python313-cuda12_8-sm90-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm90-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-avx512vnni"; };
    "torchvision-python313-cuda12_8-sm89-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm89-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx"; };
    "torchaudio-python313-cuda12_8-sm89-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm89-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx"; };
    "torchvision-python313-cuda12_8-sm89-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm89-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx2"; };
    "torchaudio-python313-cuda12_8-sm89-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm89-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx2"; };
    "torchvision-python313-cuda12_8-sm89-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm89-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx512"; };
    "torchaudio-python313-cuda12_8-sm89-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm89-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx512"; };
    "torchvision-python313-cuda12_8-sm89-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm89-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx512bf16"; };
    "torchaudio-python313-cuda12_8-sm89-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm89-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx512bf16"; };
    "torchvision-python313-cuda12_8-sm89-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm89-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx512vnni"; };
    "torchaudio-python313-cuda12_8-sm89-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm89-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-avx512vnni"; };
    "torchvision-python313-cuda12_8-sm86-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm86-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx"; };
    "torchaudio-python313-cuda12_8-sm86-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm86-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx"; };
    "torchvision-python313-cuda12_8-sm86-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm86-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx2"; };
    "torchaudio-python313-cuda12_8-sm86-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm86-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx2"; };
    "torchvision-python313-cuda12_8-sm86-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm86-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx512"; };
    "torchaudio-python313-cuda12_8-sm86-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm86-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx512"; };
    "torchvision-python313-cuda12_8-sm86-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm86-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx512bf16"; };
    "torchaudio-python313-cuda12_8-sm86-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm86-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx512bf16"; };
    "torchvision-python313-cuda12_8-sm86-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm86-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx512vnni"; };
    "torchaudio-python313-cuda12_8-sm86-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm86-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-avx512vnni"; };
    "torchvision-python313-cuda12_8-sm80-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm80-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx"; };
    "torchaudio-python313-cuda12_8-sm80-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm80-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx"; };
    "torchvision-python313-cuda12_8-sm80-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm80-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx2"; };
    "torchaudio-python313-cuda12_8-sm80-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm80-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx2"; };
    "torchvision-python313-cuda12_8-sm80-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm80-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx512"; };
    "torchaudio-python313-cuda12_8-sm80-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm80-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx512"; };
    "torchvision-python313-cuda12_8-sm80-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm80-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx512bf16"; };
    "torchaudio-python313-cuda12_8-sm80-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm80-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx512bf16"; };
    "torchvision-python313-cuda12_8-sm80-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm80-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx512vnni"; };
    "torchaudio-python313-cuda12_8-sm80-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm80-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-avx512vnni"; };
    "torchvision-python313-cuda12_8-sm75-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm75-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx"; };
    "torchaudio-python313-cuda12_8-sm75-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm75-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx"; };
    "torchvision-python313-cuda12_8-sm75-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm75-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx2"; };
    "torchaudio-python313-cuda12_8-sm75-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm75-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx2"; };
    "torchvision-python313-cuda12_8-sm75-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm75-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx512"; };
    "torchaudio-python313-cuda12_8-sm75-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm75-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx512"; };
    "torchvision-python313-cuda12_8-sm75-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm75-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx512bf16"; };
    "torchaudio-python313-cuda12_8-sm75-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm75-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx512bf16"; };
    "torchvision-python313-cuda12_8-sm75-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm75-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx512vnni"; };
    "torchaudio-python313-cuda12_8-sm75-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm75-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-avx512vnni"; };
    "torchvision-python313-cuda12_8-sm61-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm61-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm61-avx"; };
    "torchaudio-python313-cuda12_8-sm61-avx" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm61-avx.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm61-avx"; };
    "torchvision-python313-cuda12_8-sm61-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm61-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm61-avx2"; };
    "torchaudio-python313-cuda12_8-sm61-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm61-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm61-avx2"; };
    "torchvision-python313-cuda12_8-sm120-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm120-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-armv8_2"; };
    "torchaudio-python313-cuda12_8-sm120-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm120-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-armv8_2"; };
    "torchvision-python313-cuda12_8-sm120-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm120-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-armv9"; };
    "torchaudio-python313-cuda12_8-sm120-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm120-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm120-armv9"; };
    "torchvision-python313-cuda12_8-sm100-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm100-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-armv8_2"; };
    "torchaudio-python313-cuda12_8-sm100-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm100-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-armv8_2"; };
    "torchvision-python313-cuda12_8-sm100-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm100-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-armv9"; };
    "torchaudio-python313-cuda12_8-sm100-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm100-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm100-armv9"; };
    "torchvision-python313-cuda12_8-sm90-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm90-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-armv8_2"; };
    "torchaudio-python313-cuda12_8-sm90-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm90-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-armv8_2"; };
    "torchvision-python313-cuda12_8-sm90-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm90-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-armv9"; };
    "torchaudio-python313-cuda12_8-sm90-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm90-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm90-armv9"; };
    "torchvision-python313-cuda12_8-sm89-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm89-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-armv8_2"; };
    "torchaudio-python313-cuda12_8-sm89-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm89-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-armv8_2"; };
    "torchvision-python313-cuda12_8-sm89-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm89-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-armv9"; };
    "torchaudio-python313-cuda12_8-sm89-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm89-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm89-armv9"; };
    "torchvision-python313-cuda12_8-sm86-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm86-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-armv8_2"; };
    "torchaudio-python313-cuda12_8-sm86-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm86-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-armv8_2"; };
    "torchvision-python313-cuda12_8-sm86-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm86-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-armv9"; };
    "torchaudio-python313-cuda12_8-sm86-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm86-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm86-armv9"; };
    "torchvision-python313-cuda12_8-sm80-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm80-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-armv8_2"; };
    "torchaudio-python313-cuda12_8-sm80-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm80-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-armv8_2"; };
    "torchvision-python313-cuda12_8-sm80-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm80-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-armv9"; };
    "torchaudio-python313-cuda12_8-sm80-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm80-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm80-armv9"; };
    "torchvision-python313-cuda12_8-sm75-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm75-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-armv8_2"; };
    "torchaudio-python313-cuda12_8-sm75-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm75-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-armv8_2"; };
    "torchvision-python313-cuda12_8-sm75-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-cuda12_8-sm75-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-armv9"; };
    "torchaudio-python313-cuda12_8-sm75-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-cuda12_8-sm75-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_gpu_aarch64_linux; torch_of_variant = torches."pytorch-python313-cuda12_8-sm75-armv9"; };
    "torchvision-python313-torch28-cpu-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-torch28-cpu-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-avx2"; };
    "torchaudio-python313-torch28-cpu-avx2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-torch28-cpu-avx2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-avx2"; };
    "torchvision-python313-torch28-cpu-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-torch28-cpu-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-avx512"; };
    "torchaudio-python313-torch28-cpu-avx512" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-torch28-cpu-avx512.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-avx512"; };
    "torchvision-python313-torch28-cpu-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-torch28-cpu-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-avx512bf16"; };
    "torchaudio-python313-torch28-cpu-avx512bf16" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-torch28-cpu-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-avx512bf16"; };
    "torchvision-python313-torch28-cpu-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-torch28-cpu-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-avx512vnni"; };
    "torchaudio-python313-torch28-cpu-avx512vnni" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-torch28-cpu-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_x86_64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-avx512vnni"; };
    "torchvision-python313-torch28-cpu-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-torch28-cpu-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_aarch64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-armv8_2"; };
    "torchaudio-python313-torch28-cpu-armv8_2" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-torch28-cpu-armv8_2.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_aarch64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-armv8_2"; };
    "torchvision-python313-torch28-cpu-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchvision-python313-torch28-cpu-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_aarch64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-armv9"; };
    "torchaudio-python313-torch28-cpu-armv9" = import ./releases/cuda12_8/companions/.flox/pkgs/torchaudio-python313-torch28-cpu-armv9.nix { nixpkgs_pinned = nixpkgs_cuda12_8_cpu_only_aarch64_linux; torch_of_variant = torches."pytorch-python313-torch28-cpu-armv9"; };
  };

  impossibleCompanions = {
    "torchvision-python313-cuda13_0-sm121-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm121-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-avx2"; };
    "torchaudio-python313-cuda13_0-sm121-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm121-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-avx2"; };
    "torchvision-python313-cuda13_0-sm121-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm121-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-avx512"; };
    "torchaudio-python313-cuda13_0-sm121-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm121-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-avx512"; };
    "torchvision-python313-cuda13_0-sm121-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm121-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm121-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm121-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm121-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm121-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm121-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm121-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux; torch_of_variant = torches."pytorch-python313-cuda13_0-sm121-avx512vnni"; };
    "torchvision-python313-cuda13_0-sm110-avx2" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm110-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-avx2"; };
    "torchaudio-python313-cuda13_0-sm110-avx2" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm110-avx2.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-avx2"; };
    "torchvision-python313-cuda13_0-sm110-avx512" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm110-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-avx512"; };
    "torchaudio-python313-cuda13_0-sm110-avx512" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm110-avx512.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-avx512"; };
    "torchvision-python313-cuda13_0-sm110-avx512bf16" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm110-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-avx512bf16"; };
    "torchaudio-python313-cuda13_0-sm110-avx512bf16" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm110-avx512bf16.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-avx512bf16"; };
    "torchvision-python313-cuda13_0-sm110-avx512vnni" = import ./companions/.flox/pkgs/torchvision-python313-cuda13_0-sm110-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-avx512vnni"; };
    "torchaudio-python313-cuda13_0-sm110-avx512vnni" = import ./companions/.flox/pkgs/torchaudio-python313-cuda13_0-sm110-avx512vnni.nix { nixpkgs_pinned = nixpkgs_cuda13_0_gpu_x86_64_linux_2; torch_of_variant = torches."pytorch-python313-cuda13_0-sm110-avx512vnni"; };
  };
in
torches // companions // (if impossibleHosts then impossibleCompanions else {})
