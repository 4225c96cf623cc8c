# What Nix would build for recipes: { ID = { drvPath; outputs; system; features; broken; seeds; }; }
{
  # A list of { id, path }, with `nixpkgs` as a name from `imports` where there is one.
  recipes,
  # Imports of nixpkgs that several recipes share, by name.
  imports,
  # Null, or { release, names }: the packages of release.nix that read seeds, by attribute.
  shared ? null,
}:
let
  release = import (/. + shared.release) { share = true; };

  derivationOf =
    { id, path, nixpkgs ? null }:
    let
      recipe = import (/. + path);
      arguments = if nixpkgs == null then { } else { nixpkgs_pinned = imports.${nixpkgs}; };
    in
    if shared != null then
      release.${shared.names.${id}}
    else if builtins.isFunction recipe then
      recipe arguments
    else
      recipe;

  facts = d: {
    inherit (d) drvPath system;
    outputs = builtins.listToAttrs (
      map (name: { inherit name; value = d.${name}.outPath; }) d.outputs
    );
    features = d.requiredSystemFeatures or [ ];
    broken = d.meta.broken or false;
  };

  described =
    given:
    let
      d = derivationOf given;
      seeds = if shared == null then [ ] else d.seeds or [ ];
    in
    {
      name = given.id;
      value = builtins.trace "evaluating ${given.id}" (
        facts d
        // {
          seeds = builtins.listToAttrs (
            map (name: { inherit name; value = facts release.${name}; }) seeds
          );
        }
      );
    };
in
builtins.listToAttrs (map described recipes)
