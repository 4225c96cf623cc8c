# Adds tests to a package of release.nix, where nixpkgs has those of its packages: passthru.tests.
# They run the script of `invoke smoke` and fail if one of its tests does.
#
# gpuCheck needs a GPU of the variant: a builder with the feature `cuda`, as nixpkgs calls it.
package:
let
  # Without other files: a change of them would repeat the tests.
  scripts = builtins.path {
    name = "smoke-test";
    path = ../build_pytorch;
    filter = path: _: builtins.elem (baseNameOf path)
      [ "base" "installed_torch.py" "smoke" "script.py" "smoke_tests.py" ];
  };
  companion = builtins.match "(torch[a-z]+)-.*" package.pname;
  check = name: features: options: package.pythonModule.pkgs.callPackage (
    { gcc, python, runCommand }:
    runCommand "${package.pname}-${name}" {
      nativeBuildInputs = [ (python.withPackages (_: [ package ])) gcc ]; # torch.compile needs both
      requiredSystemFeatures = features
        ++ builtins.filter (it: it != "big-parallel") package.requiredSystemFeatures or [ ];
    } "python ${scripts}/smoke/script.py --check ${toString options} > $out"
  ) { };
  options = if companion == null then [ ] else [ "--companion" ] ++ companion;
  gpu = options ++ [ "--capability" package.gpuArch ];
  tests = { smoke = check "smoke" [ ] options; }
    // (if package.gpuArch or null == null then { } else { gpuCheck = check "gpu-check" [ "cuda" ] gpu; });
in
package // { inherit tests; passthru = package.passthru // { inherit tests; }; }
