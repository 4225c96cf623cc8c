# A model of nixpkgs: the result of `import (fetchTarball ...)` in a recipe without a network.
#
# It contains only the part that PyTorch recipes use, with the semantics of nixpkgs: overlays,
# override and overrideAttrs, the checks of licence, brokenness and platform, and torch with the
# values that it derives from its arguments. Anything else is an error and never a guess. The model
# shows what the Nix code of a recipe does; it does not show that the result can be built.
{
  # nixpkgs uses the platform of the machine; here the result must not depend on the machine.
  system ? modelSystem,
  localSystem ? system,
  config ? { },
  overlays ? [ ],
  crossSystem ? null,
  crossOverlays ? [ ],
  # Not in nixpkgs, set by evaluate.nix: the platform of a caller that names none, the source from
  # which the recipe imports nixpkgs, and what the revisions of nixpkgs contain.
  modelSystem ? "x86_64-linux",
  modelSource ? {
    url = null;
    sha256 = null;
  },
  modelRevisions ? { },
  ...
}@args:
let
  platform = if builtins.isString localSystem then localSystem else localSystem.system;

  lib = import ./lib.nix;

  # The options of nixpkgs with their defaults. Others are accepted and ignored, as in nixpkgs.
  checkedConfig =
    let
      given = if lib.isFunction config then config { inherit pkgs lib; } else config;
      switches = {
        allowAliases = true;
        allowBroken = false;
        allowUnfree = false;
        allowUnsupportedSystem = false;
        cudaSupport = false;
        rocmSupport = false;
      };
    in
    {
      allowUnfreePredicate = _: false;
    }
    // given
    // builtins.mapAttrs (
      name: default:
      let
        value = given.${name} or default;
      in
      lib.throwIfNot (builtins.isBool value)
        (
          "A definition for option `${name}' is not of type `boolean'. "
          + "Definition values:\n- In `nixpkgs.config': ${builtins.toJSON value}"
        )
        value
    ) switches;

  packages = import ./packages.nix {
    inherit lib;
    config = checkedConfig;
    pin = import ./pin.nix {
      inherit lib;
      revisions = modelRevisions;
      inherit (modelSource) url;
    };
    system = platform;
    # Facts: what the recipe hands to nixpkgs.
    source = modelSource // {
      platform = args.system or args.localSystem or null;
      config = builtins.filter (name: config.${name} != false) (builtins.attrNames config);
      overlays = builtins.length overlays;
    };
  };

  # An overlay gets the end result as `final` and the result of earlier overlays as `prev`.
  pkgs = lib.fix (
    lib.foldl' (lib.flip lib.extends) packages (
      [
        (final: _: {
          pkgs = final;
          inherit overlays;
          extend = overlay: final.appendOverlays [ overlay ];
          appendOverlays = extra: import ./. (args // { overlays = overlays ++ extra; });
        })
      ]
      ++ overlays
    )
  );
in
assert lib.assertMsg (args ? localSystem -> !(args ? system))
  "nixpkgs takes `system` or `localSystem`, not both";
assert lib.assertMsg (lib.elem platform lib.platforms.all) "Unknown system: ${platform}";
assert lib.assertMsg (crossSystem == null && crossOverlays == [ ])
  "the model of nixpkgs has no cross compilation";
assert lib.assertMsg (lib.isList overlays) "The overlays argument to nixpkgs must be a list.";
assert lib.assertMsg (lib.all lib.isFunction overlays)
  "All overlays passed to nixpkgs must be functions.";
pkgs
