# Packages of which only the name matters: { SYSTEM = { general = ...; byVersion.VERSION = ...; }; }
# A version that `byVersion` lacks: `pythonOf VERSION`, which Nix evaluates each time.
#
# They are free, not broken and for every platform, so that no configuration refuses them. They have
# no inputs, so that no overlay changes them. All imports of the model share them: Nix evaluates an
# imported file once. Evaluating them for each recipe would take a third of the time.
let
  lib = import ./lib.nix;

  general = [
    "bash" "ccache" "cmake" "coreutils" "gcc" "git" "lapack" "ninja" "openblas" "openssl" "patchelf" "which"
  ];
  python = [
    "numpy" "packaging" "pyyaml" "setuptools" "six" "typing-extensions" "wheel"
  ];
  pythons = [ "3.11" "3.12" "3.13" "3.14" ];

  forSystem =
    system:
    let
      mkDerivation = import ./derivation.nix { inherit lib system; config = { }; source = null; };
      named =
        prefix: pname: mkDerivation { inherit pname; version = "0"; name = "${prefix}${pname}-0"; };
      pythonOf = version: lib.genAttrs python (named "python${version}-");
    in
    {
      inherit pythonOf;
      general = lib.genAttrs general (named "");
      byVersion = lib.genAttrs pythons pythonOf;
    };
in
lib.genAttrs lib.platforms.all forSystem
