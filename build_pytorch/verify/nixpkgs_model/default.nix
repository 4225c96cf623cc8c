# A model of nixpkgs: the result of `import (fetchTarball ...)` in a recipe without a network.
#
# It contains only the part that PyTorch recipes use, with the semantics of nixpkgs; anything else is
# an error and never a guess. It shows what the Nix code of a recipe does, not that it can be built.
{
  # nixpkgs uses the platform of the machine; here the result must not depend on the machine.
  system ? "x86_64-linux",
  config ? { },
  overlays ? [ ],
  # Not in nixpkgs, set by offline-scope.nix: the source from which the recipe imports nixpkgs, and
  # what the revisions of nixpkgs contain.
  modelSource ? { url = null; sha256 = null; },
  modelRevisions ? { },
  ...
}@args:
let
  lib = import ./lib.nix;
  # The options of nixpkgs with their defaults. Others are accepted and ignored, as in nixpkgs.
  defaults = lib.genAttrs [
    "allowBroken" "allowUnfree" "allowUnsupportedSystem" "cudaSupport" "rocmSupport"
  ] (_: false);
  # What the revision in the URL contains: its default Python, its torch, its CUDA package sets, the
  # fixes in it and its companions of torch. A revision that is not known is like the default.
  rev = builtins.match ".*/archive/([0-9a-f]{40})[.].*" (toString modelSource.url);
  default = {
    torch = "2.9.1";
    python = "3.13";
    cuda = { cudaPackages_12_8 = "12.8"; cudaPackages_12_9 = "12.9"; cudaPackages_13 = "13.0"; cudaPackages_13_0 = "13.0"; };
    has = [ ];
  };
  packages = import ./packages.nix {
    inherit lib system;
    config = defaults // config;
    pin = if rev == null then default else modelRevisions.${lib.head rev} or default;
    # Facts: what the recipe hands to nixpkgs.
    source = modelSource // {
      platform = args.system or null;
      config = lib.filter (name: config.${name} != defaults.${name} or null) (lib.attrNames config);
      overlays = lib.length overlays;
    };
  };
in
# An overlay gets the end result as `final` and the result of earlier overlays as `prev`.
lib.throwIf (!lib.elem system lib.platforms.unix) "Unknown system: ${system}"
  (lib.fix (lib.foldl' (pkgs: overlay: lib.extends overlay pkgs) packages overlays))
