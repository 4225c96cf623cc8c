# Why Nix would build a package again: the attributes and inputs in which two derivations differ.
# An input of the same version is followed to what differs in it; the trail names the inputs on the
# way there.
{ isDerivation, plain }:
let
  inherit (builtins)
    attrNames concatMap elem filter intersectAttrs isList listToAttrs mapAttrs;

  # Inputs of inputs that are followed. Those of a nixpkgs without the model have hundreds of them.
  deepest = 2;

  listOf = value: if isList value then value else [ value ];
  nameOf = drv: drv.pname or drv.name;

  # The packages among the attributes of a derivation, by name.
  inputsOf =
    drv:
    listToAttrs (
      map (input: { name = nameOf input; value = input; }) (
        filter isDerivation (concatMap listOf (builtins.attrValues drv.drvAttrs))
      )
    );
  # The attributes without packages, and without what Nix adds or names itself.
  ownOf =
    drv:
    mapAttrs (_: value: if isList value then filter (item: !isDerivation item) value else value) (
      builtins.removeAttrs drv.drvAttrs (
        filter (name: isDerivation drv.drvAttrs.${name}) (attrNames drv.drvAttrs)
      )
    );

  differences =
    trail: before: after:
    let
      own = { before = ownOf before; after = ownOf after; };
      inputs = { before = inputsOf before; after = inputsOf after; };
      changed = filter (name: own.before.${name} or null != own.after.${name} or null) (
        attrNames (own.before // own.after)
      );
      only = side: other: attrNames (builtins.removeAttrs inputs.${side} (attrNames inputs.${other}));
      input = name: before: after: [ { inherit trail before after; input = name; } ];
      versionOf = drv: drv.version or "";
      ofInput =
        name:
        let
          old = inputs.before.${name};
          new = inputs.after.${name};
          deeper = differences (trail ++ [ name ]) old new;
        in
        if old.drvPath == new.drvPath then
          [ ]
        else if versionOf old != versionOf new || elem name trail || builtins.length trail >= deepest then
          input name (versionOf old) (versionOf new)
        else if deeper == [ ] then
          input name (versionOf old) (versionOf new)
        else
          deeper;
    in
    map (attribute: {
      inherit trail attribute;
      before = plain (own.before.${attribute} or null);
      after = plain (own.after.${attribute} or null);
    }) changed
    ++ concatMap (name: input name (versionOf inputs.before.${name}) null) (only "before" "after")
    ++ concatMap (name: input name null (versionOf inputs.after.${name})) (only "after" "before")
    ++ concatMap ofInput (attrNames (intersectAttrs inputs.before inputs.after));
in
before: after: if before.drvPath == after.drvPath then null else differences [ ] before after
