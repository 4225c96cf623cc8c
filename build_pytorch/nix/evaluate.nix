# Evaluates recipes one after the other and prints the facts of each as a line of JSON before it goes
# on. An error ends Nix: the results before it are known, and it belongs to the recipe after them.
{
  # A list of { id, path }. `nixpkgs` is the name of the import that the recipe gets as its argument
  # nixpkgs_pinned. A companion has `variant`, the path of the recipe of its PyTorch. With `is_set`, the
  # file is a function that returns packages (release.nix). `package` in place of a path names one of
  # `packages`. `checkout` is the value of environment variables that the recipe reads.
  recipes,
  # Functions of the scope: imports of nixpkgs that recipes share and packages of nixpkgs, by name.
  imports ? _: { },
  packages ? _: { },
  # Files with nothing but a shared import, by path.
  files ? { },
  # Returns the facts of a package; it gets the item of the list, and the package.
  facts,
  # The functions that recipes see in place of Nix's own. It gets the values of files that are
  # known, and the value of environment variables.
  scopeOf ? _: _: { inherit builtins import fetchTarball fetchGit; __findFile = builtins.findFile; },
  # The package set whose members recipes get as arguments without a default, as from Flox.
  base ? import <nixpkgs> { },
}:
let
  inherit (builtins) attrNames filter functionArgs isAttrs isFunction listToAttrs mapAttrs scopedImport typeOf;

  scope = scopeOf known "";
  shared = mapAttrs (name: nixpkgs: nixpkgs // { sharedAs = name; }) (imports scope);
  ofNixpkgs = packages scope;

  called =
    function: given:
    let
      formals = functionArgs function;
      required = filter (name: !formals.${name} && !(given ? ${name})) (attrNames formals);
      argument = name: base.${name} or (throw "nixpkgs has nothing for the argument ${name}");
    in
    if isFunction function then
      function (given // listToAttrs (map (name: { inherit name; value = argument name; }) required))
    else
      throw "the file contains a ${typeOf function}, not a function: Flox cannot call it";

  evaluated = map (
    item:
    let
      ownScope = if item ? checkout then scopeOf { } item.checkout else scope;
      function = scopedImport ownScope (/. + item.path);
      given = if item ? nixpkgs then { nixpkgs_pinned = shared.${item.nixpkgs}; } else { };
      result = called function given;
      isPackage = isAttrs result && result.type or null == "derivation";
    in
    item
    // {
      inherit function given;
      result =
        if item ? package then
          ofNixpkgs.${item.package}
        else if item.is_set or false then
          function
        else if isPackage then
          result
        else
          throw "the function returns a ${typeOf result}, not a package";
    }
  ) recipes;

  # What other recipes import: a recipe yields what it yields alone if it gets the same arguments.
  alone = listToAttrs (
    map (item: { name = item.path; value = item; }) (filter (item: item ? nixpkgs) evaluated)
  );
  known =
    mapAttrs (_: name: shared.${name}) files
    // mapAttrs (_: item: {
      __functionArgs = functionArgs item.function;
      __functor =
        _: given:
        let
          nixpkgs = given.nixpkgs_pinned or { };
          torch = given.torch_of_variant or null;
          # Nix compares the attributes of the same set by their places in memory.
          isSame = nixpkgs.sharedAs or null == item.nixpkgs && nixpkgs == shared.${item.nixpkgs};
          isSameTorch = torch == null || torch.drvPath == alone.${item.variant}.result.drvPath;
        in
        if isSame && isSameTorch then item.result else item.function given;
    }) alone;

  printed = item: builtins.trace "facts ${builtins.toJSON { inherit (item) id; facts = facts item item.result; }}" true;
in
builtins.all printed evaluated
