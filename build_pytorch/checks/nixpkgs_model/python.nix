# A Python interpreter and its packages: python313, python313.pkgs and what can be overridden there.
{
  lib,
  callPackage,
  pythonPackagesExtensions,
  # The interpreter as others see it, after its own overrides
  self,
  stdenv,
  packageOverrides ? (_: _: { }),
}:
let
  inherit (lib) extends isFunction;

  libPrefix = "python3.13";

  # The rest of what torch asks for: names are enough.
  standIns = [
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

  # buildPythonPackage consumes these; they are no attributes of the derivation.
  consumed = [
    "build-system"
    "checkInputs"
    "dependencies"
    "disabled"
    "doCheck"
    "format"
    "nativeCheckInputs"
    "optional-dependencies"
    "pyproject"
    "stdenv"
  ];

  buildWith =
    { stdenv }:
    attrsOrFunction:
    let
      asFunction = if isFunction attrsOrFunction then attrsOrFunction else _: attrsOrFunction;

      # An unsupported interpreter is refused where the package gets a path. The answer is read from
      # passthru, so a recipe that replaces passthru instead of extending it fails for want of it.
      refuseDisabled =
        drv:
        lib.extendDerivation (drv.disabled -> throw "${drv.name} not supported for interpreter ${libPrefix}") { } drv
        // {
          overrideAttrs = change: refuseDisabled (drv.overrideAttrs change);
        };

      package = stdenv.mkDerivation (
        finalAttrs:
        let
          attrs = asFunction finalAttrs;
        in
        removeAttrs attrs consumed
        // {
          # From the final name and version, so that both can still be overridden
          name = attrs.name or "${libPrefix}-${finalAttrs.pname}-${finalAttrs.version}";
          outputs = attrs.outputs or [ "out" ] ++ [ "dist" ];
          nativeBuildInputs = [ self ] ++ attrs.build-system or [ ] ++ attrs.nativeBuildInputs or [ ];
          buildInputs = attrs.buildInputs or [ ];
          propagatedBuildInputs =
            attrs.propagatedBuildInputs or [ ] ++ attrs.dependencies or [ ] ++ [ self ];
          doCheck = false;
          doInstallCheck = attrs.doCheck or true;
          passthru = {
            disabled = attrs.disabled or false;
            overridePythonAttrs =
              change:
              buildWith { inherit stdenv; } (
                final:
                let
                  old = asFunction final;
                in
                old // (if isFunction change then change old else change)
              );
          }
          // attrs.passthru or { };
          meta = {
            inherit (self.meta) platforms;
          }
          // attrs.meta or { };
        }
      );
    in
    refuseDisabled (
      package.overrideAttrs (old: {
        passthru = old.passthru // {
          pythonModule = self;
        };
      })
    );

  packages =
    final: _:
    lib.genAttrs standIns (
      pname:
      final.buildPythonPackage {
        inherit pname;
        version = "0";
      }
    )
    // {
      python = self;
      pythonPackages = final;
      pythonAtLeast = lib.versionAtLeast self.pythonVersion;
      pythonOlder = lib.versionOlder self.pythonVersion;
      inherit (self) sitePackages;

      buildPythonPackage = lib.makeOverridable buildWith { inherit stdenv; };
      buildPythonApplication = final.buildPythonPackage;

      triton = final.callPackage (
        { config, cudaSupport ? config.cudaSupport, buildPythonPackage }:
        buildPythonPackage {
          pname = "triton";
          version = "0";
          passthru = { inherit cudaSupport; };
        }
      ) { };
      triton-cuda = final.triton.override { cudaSupport = true; };

      # There is no `pytorch` in this set.
      torch = final.callPackage ./torch.nix { };
      torchWithCuda = final.torch.override {
        triton = final.triton-cuda;
        cudaSupport = true;
        rocmSupport = false;
      };
      torchWithoutCuda = final.torch.override { cudaSupport = false; };
    };

  # The formals are what python3Packages.override takes. `overrides` replaces what an earlier
  # override gave under the same name; pythonPackagesExtensions is for those who want to add.
  packageSet =
    {
      pkgs,
      stdenv,
      python,
      overrides,
    }:
    lib.makeScope pkgs.newScope (
      extends (lib.composeManyExtensions (
        [ packages ] ++ pythonPackagesExtensions ++ [ overrides ]
      )) (_: { })
    );
in
stdenv.mkDerivation {
  pname = "python3";
  version = "3.13.11";
  passthru = {
    inherit libPrefix;
    pythonVersion = "3.13";
    executable = libPrefix;
    interpreter = "${self}/bin/${libPrefix}";
    sitePackages = "lib/${libPrefix}/site-packages";
    isPy3k = true;
    pkgs = callPackage packageSet {
      overrides = packageOverrides;
      python = self;
    };
  };
  meta = {
    description = "Stand-in for Python 3.13";
    platforms = lib.platforms.unix;
  };
}
