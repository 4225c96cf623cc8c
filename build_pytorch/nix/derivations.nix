# What Nix builds for a package.
_: drv: {
  inherit (drv) drvPath system;
  outputs = builtins.listToAttrs (map (name: { inherit name; value = drv.${name}.outPath; }) drv.outputs);
}
