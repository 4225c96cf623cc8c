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
    isx86_64 = lib.hasPrefix "x86_64-" system;
    isStatic = false;
  };

  pythonName = version: "python${lib.replaceStrings [ "." ] [ "" ] version}";
  pythons = lib.unique [ "3.11" "3.12" "3.13" pin.python ];

  defaultCuda = lib.foldl' (
    newest: version:
    if lib.versions.major version == "12" && lib.versionAtLeast version newest then version else newest
  ) "12.0" (lib.attrValues pin.cuda);

  cudaPackagesOf =
    cudaMajorMinorVersion:
    final.callPackage (
      { newScope, stdenv }:
      import ./cuda.nix { inherit lib config newScope stdenv cudaMajorMinorVersion; }
    ) { };
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

  runCommand = name: env: buildCommand: mkDerivation ({ inherit name buildCommand; } // env);
  writeShellScript = name: text: mkDerivation { inherit name text; };
  symlinkJoin = { name, paths, ... }: mkDerivation { inherit name paths; };

  blas = mkDerivation {
    pname = "blas";
    version = "3";
    passthru.provider = final.openblas;
  };
  mpi = final.openmpi;

  # The default 12.x differs between revisions of nixpkgs; only its major version matters here.
  cudaPackages = cudaPackagesOf defaultCuda;
  rocmPackages = { };

  # The other MAGMA packages are overrides of this one: a patch of it applies to all of them.
  magma = final.callPackage (import ./magma.nix { inherit (pin) has; }) { };
  magma-cuda = final.magma.override { cudaSupport = true; rocmSupport = false; };
  magma-cuda-static = final.magma-cuda.override { static = true; };
  magma-hip = final.magma.override { cudaSupport = false; rocmSupport = true; };

  # Three names of the packages of one Python. If an overlay replaces one of them, the other two are
  # still the packages of nixpkgs.
  pythonPackagesExtensions = [ ];
  python3 = final.${pythonName pin.python};
  python3Packages = lib.dontRecurseIntoAttrs final.python3.pkgs;
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
      (lib.nameValuePair "${name}Packages" (lib.recurseIntoAttrs final.${name}.pkgs))
    ]
  ) pythons
)
