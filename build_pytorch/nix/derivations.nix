# What Nix would build for recipes: { ID = { drvPath; outputs; system; features; broken; }; }
{
  # A list of { id, path }, with `nixpkgs` as a name from `imports` where there is one.
  recipes,
  # Imports of nixpkgs that several recipes share, by name.
  imports,
}:
let
  derivationOf =
    { id, path, nixpkgs ? null }:
    let
      recipe = import (/. + path);
      arguments = if nixpkgs == null then { } else { nixpkgs_pinned = imports.${nixpkgs}; };
    in
    if builtins.isFunction recipe then recipe arguments else recipe;

  facts = d: {
    inherit (d) drvPath system;
    outputs = builtins.listToAttrs (
      map (name: { inherit name; value = d.${name}.outPath; }) d.outputs
    );
    features = d.requiredSystemFeatures or [ ];
    broken = d.meta.broken or false;
  };

  described = given: {
    name = given.id;
    value = builtins.trace "evaluating ${given.id}" (facts (derivationOf given));
  };
in
builtins.listToAttrs (map described recipes)
