# The top level of the package set, before all overlays.
{ lib, config, pin, system, source }:
final:
let
  mkDerivation = import ./derivation.nix { inherit lib config system source; };

  platform = {
    inherit system;
    isLinux = lib.hasSuffix "-linux" system;
    isDarwin = lib.hasSuffix "-darwin" system;
    isAarch64 = lib.hasPrefix "aarch64-" system;
  };

  pythonName = version: "python${lib.replaceStrings [ "." ] [ "" ] version}";
  pythons = lib.unique [ "3.11" "3.12" "3.13" "3.14" pin.python ];

  cudaPackagesOf =
    cudaMajorMinorVersion:
    final.callPackage (
      { newScope, stdenv }:
      import ./cuda.nix { inherit lib config newScope stdenv pin cudaMajorMinorVersion; }
    ) { };
in
import ./fetchers.nix { inherit lib mkDerivation; }
// (import ./stand-ins.nix).${system}.general
// {
  inherit lib config system;

  stdenv = {
    inherit mkDerivation system;
    buildPlatform = platform;
    hostPlatform = platform;
    inherit (platform) isLinux isDarwin isAarch64;
    cc = final.gcc;
  };

  callPackage = final.newScope { };
  newScope = scope: lib.callPackageWith (final // scope);

  runCommand = name: env: buildCommand: mkDerivation ({ inherit name buildCommand; } // env);

  blas = lib.makeOverridable ({ blasProvider }: mkDerivation {
    name = "blas-3";
    passthru = { provider = blasProvider; implementation = lib.getName blasProvider; };
  }) { blasProvider = final.openblas; };
  mkl = mkDerivation {
    name = "mkl-2023.1.0";
    meta = { license = lib.licenses.issl; platforms = [ "x86_64-linux" ]; };
  };

  # The default is a 12.x in all pins; only its major version matters here.
  cudaPackages = final.cudaPackages_12_8 or (cudaPackagesOf "12.8");

  # The other MAGMA packages are overrides of this one: a patch of it applies to all of them.
  magma = final.callPackage (import ./magma.nix { inherit (pin) has; }) { };
  magma-cuda = final.magma.override { cudaSupport = true; rocmSupport = false; };
  magma-cuda-static = final.magma-cuda.override { static = true; };

  # Three names of the packages of one Python. If an overlay replaces one of them, the other two are
  # still the packages of nixpkgs.
  python3 = final.${pythonName pin.python};
  python3Packages = final.python3.pkgs;
}
// lib.mapAttrs (_: cudaPackagesOf) pin.cuda
// lib.listToAttrs (
  lib.concatMap (
    pythonVersion:
    let
      name = pythonName pythonVersion;
      function = import ./python.nix { inherit pin pythonVersion; };
    in
    [
      (lib.nameValuePair name (final.callPackage function { self = final.${name}; }))
      (lib.nameValuePair "${name}Packages" final.${name}.pkgs)
    ]
  ) pythons
)
