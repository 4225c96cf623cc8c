# Packages of which nothing but the name matters: { SYSTEM = { general = ...; python = ...; }; }
#
# Free, not broken and for every platform, so no configuration refuses them; and they need nothing,
# so no overlay changes them. All imports of the model can share them, and do: Nix remembers the
# value of an imported file, and to make these anew for each recipe would take a third of the time.
let
  lib = import ./lib.nix;

  forSystem =
    system:
    let
      mkDerivation = import ./derivation.nix {
        inherit lib system;
        config = { };
        source = null;
      };
      named =
        prefix: pname:
        mkDerivation {
          inherit pname;
          version = "0";
          name = "${prefix}${pname}-0";
        };
    in
    {
      general = lib.genAttrs general (named "");
      python = lib.genAttrs python (named "python3.13-");
    };

  general = [
    "autoAddDriverRunpath"
    "bash"
    "cmake"
    "coreutils"
    "gcc"
    "gfortran"
    "git"
    "git-unroll"
    "lapack"
    "ninja"
    "numactl"
    "openblas"
    "openmpi"
    "openssl"
    "patchelf"
    "removeReferencesTo"
    "shaderc"
    "vulkan-headers"
    "vulkan-loader"
    "which"
  ];

  python = [
    "astunparse"
    "expecttest"
    "filelock"
    "fsspec"
    "hypothesis"
    "jinja2"
    "networkx"
    "numpy"
    "packaging"
    "pillow"
    "protobuf"
    "psutil"
    "pybind11"
    "pyyaml"
    "requests"
    "setuptools"
    "six"
    "sympy"
    "tensorboard"
    "types-dataclasses"
    "typing-extensions"
    "wheel"
  ];
in
lib.genAttrs lib.platforms.all forSystem
