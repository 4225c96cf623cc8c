# What many recipes evaluate to, in one process and without a network:
#
#   echo 'import <model/evaluate.nix> { recipes = [ { id = "..."; path = "/.../x.nix"; } ]; }' |
#     nix-instantiate --eval --strict --json --store dummy:// \
#       --option restrict-eval true -I model=FOLDER_OF_THIS_FILE -I recipes=FOLDER_OF_THE_RECIPES -
#
# The dummy store makes it work for any user: evaluation computes store paths and writes none, but
# the usual store is a daemon or a database that an ordinary user may not open. restrict-eval is a
# second fence behind offline-scope.nix: no file outside the -I folders, no network.
#
# What Nix code throws is caught per recipe, but the message is lost: where `problem` does not say
# why, the same recipe alone with `catch = false` ends with it on stderr. Other errors (a missing
# attribute, a wrong type, an unexpected argument) end the process at once, since Nix lets nobody
# catch them. With `announce = true` the last "trace: evaluating ID" on stderr then names the
# recipe to blame: take it out and go on.
{
  # A list of { id, path }, or { id, path, nixpkgs } with a name from `shared`
  recipes,
  # Imports of nixpkgs that several recipes say in the same words, by name: a function of the
  # scope, so that they too are answered by the model. Handed to a recipe as the argument
  # nixpkgs_pinned, they are made once instead of once for each recipe.
  shared ? _: { },
  model ? ./.,
  # The platform of the caller: of the package set that gives arguments to recipes, and of each
  # nixpkgs that a recipe imports without saying a platform.
  system ? "x86_64-linux",
  announce ? false,
  catch ? true,
  # With `false` recipes get the nixpkgs that they name, from the network or the store, and no
  # other arguments. Everything above about the model and the dummy store does not hold then.
  offline ? true,
}:
let
  inherit (builtins)
    attrNames
    concatMap
    filter
    isAttrs
    isFunction
    isList
    isString
    ;

  tryEval =
    if catch then
      builtins.tryEval
    else
      value:
      builtins.seq value {
        inherit value;
        success = true;
      };

  scope =
    if offline then
      import ./offline-scope.nix { inherit model system; }
    else
      {
        inherit builtins fetchGit fetchTarball import scopedImport;
        __findFile = builtins.findFile;
      };
  # What Flox calls recipes with: its own nixpkgs, not the one that a recipe pins.
  base = if offline then import model { inherit system; } else { callPackage = function: function; };

  imports = shared scope;

  isDerivation = value: (value.type or null) == "derivation";

  # Any value as JSON can have it
  plain =
    value:
    if isDerivation value then
      { derivation = value.name; }
    else if isAttrs value then
      builtins.mapAttrs (_: plain) value
    else if isList value then
      map plain value
    else if isFunction value then
      { function = builtins.functionArgs value; }
    else if builtins.isPath value then
      toString value
    else
      value;

  attempt =
    value:
    let
      whole = plain value;
    in
    tryEval (builtins.deepSeq whole whole);

  factsOf = import ./facts.nix { inherit isDerivation; };

  # Why nixpkgs refuses this package or one that it needs, in nixpkgs' words
  refusalsOf =
    drv:
    if !(drv ? model) then
      [ ]
    else
      filter isString [ drv.model.refusal ]
      ++ concatMap refusalsOf (filter isDerivation drv.model.inputs);

  failed = problem: {
    ok = false;
    inherit problem;
    unreadable = [ ];
    facts = null;
  };

  described =
    drv:
    let
      attempts = builtins.mapAttrs (_: attempt) (factsOf drv);
      unreadable = filter (name: !attempts.${name}.success) (attrNames attempts);
      refusals = attempt (refusalsOf drv);
    in
    {
      ok = attempts.drvPath.success;
      problem =
        if attempts.drvPath.success then
          null
        else if refusals.success && refusals.value != [ ] then
          builtins.head refusals.value
        else
          "it throws where its derivation is asked for; Nix keeps the message to itself";
      inherit unreadable;
      facts = builtins.mapAttrs (_: a: if a.success then a.value else null) attempts;
    };

  # As callPackage does it, but what callPackage aborts for is only reported.
  evaluated =
    path: arguments:
    let
      loaded = tryEval (builtins.scopedImport scope path);
      function = loaded.value;
      formals = builtins.functionArgs function;
      missing = filter (name: !formals.${name} && !(base ? ${name} || arguments ? ${name})) (
        attrNames formals
      );
      called = tryEval (base.callPackage function arguments);
      result = called.value;
    in
    if !loaded.success then
      failed "the file throws; Nix keeps the message to itself"
    else if !isFunction function then
      failed "the file holds a ${builtins.typeOf function}, not a function: Flox cannot call it"
    else if missing != [ ] then
      failed "it wants arguments that the model of nixpkgs does not have: ${toString missing}"
    else if !called.success then
      failed "it throws when called; Nix keeps the message to itself"
    else if !isDerivation result then
      failed "it gives a ${builtins.typeOf result}, not a package"
    else
      described result;

  report =
    {
      id,
      path,
      nixpkgs ? null,
    }:
    let
      arguments = if nixpkgs == null then { } else { nixpkgs_pinned = imports.${nixpkgs}; };
      result = {
        inherit id;
      }
      // evaluated (/. + path) arguments;
    in
    if announce then builtins.trace "evaluating ${id}" result else result;
in
map report recipes
