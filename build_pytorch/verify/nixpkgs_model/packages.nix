# The top level of the package set, before all overlays.
{ lib, config, pin, system, source }:
final:
let
  mkDerivation = import ./derivation.nix { inherit lib config system source; };
  # Packages of which only the name matters.
  plain = pname: mkDerivation { inherit pname; version = "0"; };

  cudaPackagesOf = version: final.callPackage (import ./cuda.nix { inherit pin version; }) { };

  pythonName = version: "python${lib.replaceStrings [ "." ] [ "" ] version}";
  # The packages of one Python under two of their three names. If an overlay replaces one of the
  # names, the other two are still the packages of nixpkgs.
  pythonPackages = pythonVersion: rec {
    name = pythonName pythonVersion;
    value = final.callPackage (import ./python.nix { inherit pin pythonVersion; }) { self = final.${name}; };
  };
  pythons = map pythonPackages [ "3.11" "3.12" "3.13" "3.14" pin.python ];
  sets = map ({ name, ... }: { name = "${name}Packages"; value = final.${name}.pkgs; }) pythons;
in
import ./fetchers.nix { inherit lib mkDerivation; }
// lib.genAttrs [
  "bash" "ccache" "cmake" "coreutils" "gcc" "git" "lapack" "ninja" "numactl" "openblas" "openssl" "patchelf" "which"
] plain
// {
  inherit lib config system;
  pkgs = final;
  stdenv = {
    inherit mkDerivation system;
    hostPlatform.isLinux = lib.elem system lib.platforms.linux;
    hostPlatform.isDarwin = lib.elem system lib.platforms.darwin;
  };
  callPackage = final.newScope { };
  newScope = scope: lib.callPackageWith (final // scope);
  runCommand = name: env: buildCommand: mkDerivation ({ inherit name buildCommand; } // env);

  blas = lib.makeOverridable ({ blasProvider }: mkDerivation {
    name = "blas-3";
    passthru = { provider = blasProvider; implementation = blasProvider.pname; };
  }) { blasProvider = final.openblas; };
  mkl = mkDerivation {
    pname = "mkl"; version = "2023.1.0"; meta.license = lib.licenses.issl; meta.platforms = [ "x86_64-linux" ];
  };
  # Its hook lets a program find the driver of the machine that it runs on.
  autoAddDriverRunpath = mkDerivation { name = "auto-add-driver-runpath-hook"; };
  # The default is a 12.x in all pins; only its major version matters here.
  cudaPackages = final.cudaPackages_12_8 or (cudaPackagesOf "12.8");
  # The other MAGMA packages are overrides of this one: a patch of it applies to all of them.
  magma = final.callPackage (import ./magma.nix { inherit (pin) has; }) { };
  magma-cuda = final.magma.override { cudaSupport = true; rocmSupport = false; };
  magma-cuda-static = final.magma-cuda.override { static = true; };
  python3 = final.${pythonName pin.python};
  python3Packages = final.python3.pkgs;
}
// lib.mapAttrs (_: cudaPackagesOf) pin.cuda
// lib.listToAttrs (pythons ++ sets)
