# The top level of the package set, before all overlays.
{
  lib,
  config,
  system,
  source,
}:
final:
let
  mkDerivation = import ./derivation.nix {
    inherit
      lib
      config
      system
      source
      ;
  };

  platform = {
    inherit system;
    isLinux = lib.hasSuffix "-linux" system;
    isDarwin = lib.hasSuffix "-darwin" system;
    isAarch64 = lib.hasPrefix "aarch64-" system;
    isx86_64 = lib.hasPrefix "x86_64-" system;
    isStatic = false;
  };

  cudaPackagesOf =
    cudaMajorMinorVersion:
    final.callPackage (
      { newScope, stdenv, cudaMajorMinorVersion }:
      import ./cuda.nix {
        inherit
          lib
          config
          newScope
          stdenv
          cudaMajorMinorVersion
          ;
      }
    ) { inherit cudaMajorMinorVersion; };
in
import ./fetchers.nix { inherit lib mkDerivation; }
// (import ./stand-ins.nix).${system}.general
// {
  inherit lib config system;
  path = ./.;

  stdenv = {
    inherit mkDerivation system;
    buildPlatform = platform;
    hostPlatform = platform;
    targetPlatform = platform;
    inherit (platform) isLinux isDarwin isAarch64;
    shell = "/bin/sh";
    cc = final.gcc;
  };
  stdenvNoCC = final.stdenv;

  callPackage = final.newScope { };
  newScope = scope: lib.callPackageWith (final // scope);

  runCommand =
    name: env: buildCommand:
    mkDerivation ({ inherit name buildCommand; } // env);
  writeShellScript = name: text: mkDerivation { inherit name text; };
  symlinkJoin =
    { name, paths, ... }:
    mkDerivation { inherit name paths; };

  blas = mkDerivation {
    pname = "blas";
    version = "3";
    passthru.provider = final.openblas;
  };
  mpi = final.openmpi;

  # The default 12.x differs between revisions of nixpkgs; only its major version matters here.
  cudaPackages = final.cudaPackages_12;
  cudaPackages_12 = final.cudaPackages_12_8;
  cudaPackages_12_6 = cudaPackagesOf "12.6";
  cudaPackages_12_8 = cudaPackagesOf "12.8";
  cudaPackages_12_9 = cudaPackagesOf "12.9";
  cudaPackages_13 = final.cudaPackages_13_0;
  cudaPackages_13_0 = cudaPackagesOf "13.0";
  cudaPackages_13_1 = cudaPackagesOf "13.1";
  cudaPackages_13_2 = cudaPackagesOf "13.2";
  rocmPackages = { };

  # The other MAGMA packages are overrides of this one: a patch of it applies to all of them.
  magma = final.callPackage ./magma.nix { };
  magma-cuda = final.magma.override {
    cudaSupport = true;
    rocmSupport = false;
  };
  magma-cuda-static = final.magma-cuda.override { static = true; };
  magma-hip = final.magma.override {
    cudaSupport = false;
    rocmSupport = true;
  };

  # Three names of the same packages. If an overlay replaces one of them, the other two are still
  # the packages of nixpkgs.
  pythonPackagesExtensions = [ ];
  python313 = final.callPackage ./python.nix { self = final.python313; };
  python313Packages = lib.recurseIntoAttrs final.python313.pkgs;
  python3 = final.python313;
  python3Packages = lib.dontRecurseIntoAttrs final.python3.pkgs;
}
