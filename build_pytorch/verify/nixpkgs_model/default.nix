# A model of nixpkgs: what `import (fetchTarball ...)` gives a recipe when there is no network.
#
# It is small and knows only what recipes for PyTorch touch, but that it does by nixpkgs' rules:
# overlays, override and overrideAttrs, the checks of licence, brokenness and platform, and torch
# with what it derives from its arguments. Whatever the model does not have is an error, never a
# guess. What it shows is what the recipe's Nix code does, not that the result can be built.
{
  # Real nixpkgs asks the machine; a model that did would give each machine another answer.
  system ? modelSystem,
  localSystem ? system,
  config ? { },
  overlays ? [ ],
  crossSystem ? null,
  crossOverlays ? [ ],
  # Not in nixpkgs: what evaluate.nix fills in, the platform of a caller that names none and
  # where the recipe believes this to come from.
  modelSystem ? "x86_64-linux",
  modelSource ? {
    url = null;
    sha256 = null;
  },
  ...
}@args:
let
  platform = if builtins.isString localSystem then localSystem else localSystem.system;

  lib = import ./lib.nix;

  # nixpkgs' options with their defaults. Others are let through unread, as there.
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
    system = platform;
    source = modelSource;
  };

  # Each overlay sees the end result as `final` and what came before it as `prev`.
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
  "the model of nixpkgs knows no cross compilation";
assert lib.assertMsg (lib.isList overlays) "The overlays argument to nixpkgs must be a list.";
assert lib.assertMsg (lib.all lib.isFunction overlays)
  "All overlays passed to nixpkgs must be functions.";
pkgs
