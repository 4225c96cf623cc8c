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
  # Not in nixpkgs, set by offline-scope.nix: the platform of a caller that names none, the source
  # from which the recipe imports nixpkgs, and what the revisions of nixpkgs contain.
  modelSystem ? "x86_64-linux",
  modelSource ? { url = null; sha256 = null; },
  modelRevisions ? { },
  ...
}@args:
let
  lib = import ./lib.nix;
  platform = if builtins.isString localSystem then localSystem else localSystem.system;

  # The options of nixpkgs with their defaults. Others are accepted and ignored, as in nixpkgs.
  given = if lib.isFunction config then config { inherit pkgs lib; } else config;
  defaults = lib.genAttrs [
    "allowBroken" "allowUnfree" "allowUnsupportedSystem" "cudaSupport" "rocmSupport"
  ] (_: false);

  # What the revision in the URL contains: its default Python, its torch, its CUDA package sets, the
  # fixes in it and its companions of torch. A revision that is not known is like the default.
  rev = builtins.match ".*/archive/([0-9a-f]{40})[.].*" (toString modelSource.url);
  default = {
    torch = "2.9.1";
    python = "3.13";
    cuda = {
      cudaPackages_12_8 = "12.8";
      cudaPackages_12_9 = "12.9";
      cudaPackages_13 = "13.0";
      cudaPackages_13_0 = "13.0";
    };
    has = [ ];
  };

  packages = import ./packages.nix {
    inherit lib;
    config = defaults // given;
    pin = if rev == null then default else modelRevisions.${lib.head rev} or default;
    system = platform;
    # Facts: what the recipe hands to nixpkgs.
    source = modelSource // {
      platform = args.system or args.localSystem or null;
      config = lib.filter (name: given.${name} != defaults.${name} or null) (lib.attrNames given);
      overlays = lib.length overlays;
    };
  };
  # An overlay gets the end result as `final` and the result of earlier overlays as `prev`.
  pkgs = lib.fix (lib.foldl' (pkgs: overlay: lib.extends overlay pkgs) packages overlays);
in
lib.throwIf (!lib.elem platform lib.platforms.all) "Unknown system: ${platform}" pkgs
