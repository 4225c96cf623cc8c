# The scope of an evaluated recipe, for scopedImport; files that the recipe imports get it as
# well. Every function that reaches the network, the host or another nixpkgs returns the model or
# throws an error, so that the result depends on the recipe alone.
{
  model,
  # What revisions of nixpkgs contain, and the other tarballs that exist, as in evaluate.nix.
  revisions,
  repositories,
  # The values of files that are evaluated already, by path.
  known,
  # The value of builtins.currentSystem, and the platform of a nixpkgs without `system`.
  system,
}:
let
  inherit (builtins) isAttrs match stringLength substring;

  root = toString model;
  # Whether a path is the folder of the model, also with what does not change it.
  isModel =
    path:
    let
      whole = toString path;
      rest = substring (stringLength root) (-1) whole;
    in
    substring 0 (stringLength root) whole == root && match "(/|/\\.|/default\\.nix)*" rest != null;

  unavailable =
    what: throw "${what}: not available, recipes are evaluated without access to the network and the host";

  # The model, in place of any nixpkgs. A set, so that `import` gets the source that the recipe
  # names; in a string it becomes a path.
  fetched =
    fetcher: url: sha256:
    if repositories ? ${url} then
      # Not a folder that exists: callPackage of the model knows the files below it.
      "${root}/repositories/${repositories.${url}}/${if sha256 == null then "any" else sha256}"
    else if match ".*nixpkgs.*|channel:.*|.*channels\\.nixos\\.org/.*" url == null then
      unavailable "${fetcher} ${url}"
    else
      { outPath = root; modelSource = { inherit url sha256; }; };

  fetchTarball =
    args:
    let
      given = if isAttrs args then args else { url = args; };
      unknown = builtins.attrNames (removeAttrs given [ "url" "sha256" "name" ]);
    in
    if unknown != [ ] then
      throw "unsupported argument '${builtins.head unknown}' to 'fetchTarball'"
    else
      fetched "fetchTarball" given.url (given.sha256 or null);

  findFile =
    _: name:
    if name == "nixpkgs" then
      fetched "findFile" "<nixpkgs>" null
    else
      throw "file '${name}' was not found in the Nix search path";

  none = { url = null; sha256 = null; };

  importAny =
    path:
    if isModel path then
      args:
      import model (
        { modelSystem = system; modelRevisions = revisions; modelSource = path.modelSource or none; }
        // args
      )
    else
      known.${toString path} or (scopedImport scope path);

  # Names that Nix defines without `builtins.`
  globals = {
    import = importAny;
    scopedImport = more: path: scopedImport (scope // more) path;
    inherit fetchTarball;
    fetchGit = args: fetched "fetchGit" (toString (args.url or args)) null;
    fetchMercurial = _: unavailable "fetchMercurial";
    fetchTree = _: unavailable "fetchTree";
  };

  # Names that Nix defines as `builtins.name` and `__name`.
  others = {
    currentSystem = system;
    currentTime = unavailable "currentTime";
    functionArgs = function: function.__functionArgs or (builtins.functionArgs function);
    fetchurl = _: unavailable "builtins.fetchurl";
    getEnv = _: "";
    getFlake = _: unavailable "getFlake";
    inherit findFile;
    nixPath = [ { prefix = "nixpkgs"; path = root; } ];
    storePath = _: unavailable "storePath";
  };

  scope =
    globals
    // builtins.listToAttrs (
      map (name: { name = "__${name}"; value = others.${name}; }) (builtins.attrNames others)
    )
    // { builtins = builtins // globals // others // { inherit (scope) builtins; }; };
in
scope
