# What many recipes evaluate to, in one process and without a network:
#
#   nix-instantiate --eval --strict --json --store dummy:// \
#     --option restrict-eval true -I model=FOLDER_OF_THIS_FILE -I recipes=FOLDER_OF_THE_RECIPES \
#     --argstr recipes '[{"id": "...", "path": "/.../x.nix"}, ...]' evaluate.nix
#
# The dummy store makes it work for any user: evaluation computes store paths and writes none, but
# the usual store is a daemon or a database that an ordinary user may not open. restrict-eval is a
# second fence behind offline-scope.nix: no file outside the -I folders, no network.
#
# What Nix code throws is caught per recipe. Other errors (a missing attribute, a wrong type, an
# unexpected argument) end the process, since Nix lets nobody catch them. With `--arg announce true`
# stderr then has, as its last "trace: evaluating ID", the recipe to blame: take it out, go on.
{
  # A list of { id, path }, or the same as JSON text
  recipes,
  model ? ./.,
  # The platform of the caller: of the package set that gives arguments to recipes, and of each
  # nixpkgs that a recipe imports without saying a platform.
  system ? "x86_64-linux",
  announce ? false,
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
    tryEval
    ;

  scope = import ./offline-scope.nix { inherit model system; };
  # What Flox calls recipes with: its own nixpkgs, not the one that a recipe pins.
  base = import model { inherit system; };

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
      filter isString [ drv.model.refusal ] ++ concatMap refusalsOf (filter isDerivation drv.model.inputs);

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
          "it throws where its derivation is asked for; evaluate it alone to see the message";
      inherit unreadable;
      facts = builtins.mapAttrs (_: a: if a.success then a.value else null) attempts;
    };

  # As callPackage does it, but what callPackage aborts for is only reported.
  evaluated =
    path:
    let
      loaded = tryEval (builtins.scopedImport scope path);
      function = loaded.value;
      formals = builtins.functionArgs function;
      missing = filter (name: !formals.${name} && !(base ? ${name})) (attrNames formals);
      called = tryEval (base.callPackage function { });
      result = called.value;
    in
    if !loaded.success then
      failed "the file throws; evaluate it alone to see the message"
    else if !isFunction function then
      failed "the file holds a ${builtins.typeOf function}, not a function: Flox cannot call it"
    else if missing != [ ] then
      failed "it wants arguments that nixpkgs does not have: ${toString missing}"
    else if !called.success then
      failed "it throws when called; evaluate it alone to see the message"
    else if !isDerivation result then
      failed "it gives a ${builtins.typeOf result}, not a package"
    else
      described result;

  report =
    { id, path }:
    let
      result = { inherit id; } // evaluated (/. + path);
    in
    if announce then builtins.trace "evaluating ${id}" result else result;
in
map report (if isString recipes then builtins.fromJSON recipes else recipes)
