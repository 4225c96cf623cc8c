# Evaluates many recipes in one process and without a network. restrict-eval is a second barrier
# behind offline-scope.nix: no file outside the -I folders.
#
# `throw` and `assert` are caught for each recipe, but Nix discards the message: to get it, evaluate
# the recipe alone with `catch = false`. Other errors (a missing attribute, a wrong type) cannot be
# caught and end the process; the last "trace: evaluating ID" on stderr names the recipe.
{
  # A list of { id, path }, with `nixpkgs` as a name from `shared` and `pin` as a name from `pins`
  # where there is one. With `isSet = true`, the file contains a set of packages (release.nix); its
  # `files` contain nothing but what they name in `shared`. A companion has `variant`, the path of
  # the recipe of its PyTorch.
  recipes,
  # Imports of nixpkgs that several recipes share, by name. A function of the scope, so that they
  # import the model as well. A recipe gets its import as the argument nixpkgs_pinned.
  shared ? _: { },
  # The packages of the pinned nixpkgs by name, to compare recipes with; a function of the scope.
  pins ? _: { },
  # What revisions of nixpkgs contain, by revision; the form is that of the default in default.nix.
  revisions ? { },
  # Tarballs of repositories with CUDA packages, each with a name, by URL.
  repositories ? { },
  catch ? true,
  # If false, recipes import the nixpkgs that they name, and the model is not used.
  offline ? true,
  # If not null, pairs of recipes to compare, a list of { id, before, after } with paths of
  # `recipes`: the result is then what differs in each pair, and null if nothing does.
  pairs ? null,
}:
let
  inherit (builtins) attrNames concatMap filter isAttrs isFunction isList isString mapAttrs;

  # The platform of each nixpkgs that is imported without one.
  system = "x86_64-linux";

  tryEval =
    if catch then builtins.tryEval else value: builtins.seq value { inherit value; success = true; };

  scope =
    if offline then
      import ./offline-scope.nix { model = ./.; inherit known repositories revisions system; }
    else
      {
        inherit builtins fetchGit fetchTarball import scopedImport;
        __findFile = builtins.findFile;
      };
  # The package set that Flox calls recipes with: its own nixpkgs, not the pinned one.
  base = if offline then import ./. { inherit system; } else { callPackage = function: function; };

  imports = shared scope;
  pinned = pins scope;

  # What release.nix and companions import, by path: it is not evaluated for each of them again.
  known = builtins.listToAttrs (concatMap (
    recipe@{ path, files ? { }, ... }:
    map (file: { name = file; value = imports.${files.${file}}; }) (attrNames files)
    ++ (if recipe ? nixpkgs then [ { name = path; value = reusable recipe; } ] else [ ])
  ) recipes);

  # The function of a recipe. It yields what it yielded alone if it gets the same arguments; without
  # `pkgs` they are the same as well, because <nixpkgs> is `base` then.
  reusable =
    { path, nixpkgs, variant ? null, ... }:
    let
      function = builtins.scopedImport scope (/. + path);
      alone = base.callPackage function { nixpkgs_pinned = imports.${nixpkgs}; };
      torch = known.${variant}.alone;
      isAlone = {
        pkgs = isSame base.pkgs;
        nixpkgs_pinned = isSame imports.${nixpkgs};
        torch_of_variant =
          given:
          known ? ${toString variant}
          && isSame torch given
          && builtins.any (input: input.drvPath or null == torch.drvPath) (alone.propagatedBuildInputs or [ ]);
      };
      getsSame =
        given:
        isAttrs given
        && given ? nixpkgs_pinned
        && builtins.all (name: isAlone ? ${name} && isAlone.${name} given.${name}) (attrNames given);
    in
    if !isFunction function then
      function
    else
      {
        inherit alone function;
        __functionArgs = builtins.functionArgs function;
        __functor = _: given: if getsSame given then alone else function given;
      };

  # Whether two package sets, or two packages, are the same value. Nix finds a function equal to
  # itself only, so that one of them tells others apart before all attributes are compared; without
  # `type`, it does not compare packages by their paths alone.
  isSame =
    one: other:
    let
      functions = builtins.intersectAttrs { extend = null; overrideAttrs = null; };
    in
    isAttrs other
    && functions one == functions other
    && removeAttrs one [ "type" ] == removeAttrs other [ "type" ];

  isDerivation = value: (value.type or null) == "derivation";

  # Returns any value in a form that can be printed as JSON.
  plain =
    value:
    if isDerivation value then
      { derivation = value.name; }
    else if isAttrs value then
      mapAttrs (_: plain) value
    else if isList value then
      map plain value
    else if isFunction value then
      { function = builtins.functionArgs value; }
    else if builtins.isPath value then
      toString value
    else
      value;

  attempt = value: let whole = plain value; in tryEval (builtins.deepSeq whole whole);

  factsOf = import ./facts.nix { inherit isDerivation plain; };

  # The messages with which nixpkgs refuses this package or its inputs.
  refusalsOf =
    drv:
    if !(drv ? model) then
      [ ]
    else
      filter isString [ drv.model.refusal ]
      ++ concatMap refusalsOf (filter isDerivation drv.model.inputs);

  result = problem: facts: { ok = problem == null; inherit problem facts; unreadable = [ ]; };
  failed = problem: result problem null;
  thrown = what: failed "${what} throws an error; its message was discarded";

  # Whether the PyTorch of a recipe is broken if nixpkgs has a reason that no recipe knows.
  brokenForOther =
    function: arguments:
    let
      isCompanion = builtins.functionArgs function ? torch_of_variant;
      pinned = if isCompanion then { } else arguments.nixpkgs_pinned or { };
      isSet = name: builtins.match "python3[0-9]*Packages" name != null;
      withReason = set: set // {
        torch = set.torch.overrideAttrs (old: {
          passthru = old.passthru // {
            brokenConditions = old.passthru.brokenConditions // { "another reason" = true; };
          };
        });
      };
      sets = filter isSet (attrNames pinned);
      changed = builtins.listToAttrs (
        map (name: { inherit name; value = withReason pinned.${name}; }) sets
      );
    in
    if sets == [ ] then null else (function { nixpkgs_pinned = pinned // changed; }).meta.broken;

  described =
    pin: drv: others:
    let
      attempts = mapAttrs (_: attempt) (factsOf pin drv // others);
      refusals = attempt (refusalsOf drv);
      problem =
        if attempts.drvPath.success then
          null
        else if refusals.success && refusals.value != [ ] then
          builtins.head refusals.value
        else
          "the derivation throws an error; its message was discarded";
    in
    result problem (mapAttrs (_: a: if a.success then a.value else null) attempts)
    // { unreadable = filter (name: !attempts.${name}.success) (attrNames attempts); };

  # The packages of release.nix, and the names of those that a machine can
  # run. The pinned nixpkgs takes minutes for derivations: those of recipes have to do there.
  evaluatedSet =
    path:
    let
      function = builtins.scopedImport scope path;
      sets = attempt {
        packages = mapAttrs (_: drv: {
          inherit (drv) name system;
          drvPath = if offline then drv.drvPath else null;
        }) (function { });
        possible = attrNames (function { impossibleHosts = false; });
      };
    in
    if !isFunction function then
      failed "the file contains a ${builtins.typeOf function}, not a function"
    else if !sets.success then
      thrown "the file"
    else
      result null ({ drvPath = null; } // sets.value);

  # Does the same as callPackage, but reports the errors for which callPackage aborts.
  evaluated =
    path: arguments: pin:
    let
      recipe = if offline then known.${toString path} or { } else { };
      loaded = tryEval (recipe.function or (builtins.scopedImport scope path));
      function = loaded.value;
      formals = builtins.functionArgs function;
      missing = filter (name: !formals.${name} && !(base ? ${name} || arguments ? ${name})) (
        attrNames formals
      );
      called = tryEval (recipe.alone or (base.callPackage function arguments));
    in
    if !loaded.success then
      thrown "the file"
    else if !isFunction function then
      failed "the file contains a ${builtins.typeOf function}, not a function: Flox cannot call it"
    else if missing != [ ] then
      failed "it has arguments that the model of nixpkgs does not have: ${toString missing}"
    else if !called.success then
      thrown "the function"
    else if !isDerivation called.value then
      failed "the function returns a ${builtins.typeOf called.value}, not a package"
    else
      described pin called.value { brokenForOther = brokenForOther function arguments; };

  report =
    { id, path, nixpkgs ? null, pin ? null, isSet ? false, ... }:
    let
      arguments = if nixpkgs == null then { } else { nixpkgs_pinned = imports.${nixpkgs}; };
      pinPackage = if pin == null then null else pinned.${pin};
      file = /. + path;
      found = if isSet then evaluatedSet file else evaluated file arguments pinPackage;
    in
    builtins.trace "evaluating ${id}" ({ inherit id; } // found);
  differences = import ./rebuilds.nix { inherit isDerivation plain; };
  packageOf = path: known.${path}.alone or (base.callPackage (builtins.scopedImport scope path) { });
  compared =
    { id, before, after }:
    builtins.trace "evaluating ${id}" {
      inherit id;
      changes = differences (packageOf before) (packageOf after);
    };
in
if pairs == null then map report recipes else map compared pairs
