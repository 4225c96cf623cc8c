# What recipes see in place of functions of Nix that reach the network, the host or another nixpkgs:
# they return the model or throw an error. Files that a recipe imports see the same.
{
  revisions, # what revisions of nixpkgs contain: see default.nix
  repositories, # the tarballs of repositories with CUDA packages, each with a name, by URL
}:
# The values of files that are evaluated already, by path, and the value of environment variables,
# which may name a local checkout of such a repository.
known: checkout:
let
  inherit (builtins) isAttrs listToAttrs match;
  root = toString ./.;
  unavailable = what: throw "${what}: not available, recipes are evaluated without access to the network and the host";

  # The model, in place of any nixpkgs. A set, so that `import` gets the source that the recipe
  # names; in a string it becomes a path.
  fetched =
    fetcher: url: sha256:
    if repositories ? ${url} then
      # Not a folder that exists: callPackage of the model knows the files below it.
      "/repositories/${repositories.${url}}/${if sha256 == null then "any" else sha256}"
    else if match ".*nixpkgs.*|channel:.*|.*channels\\.nixos\\.org/.*" url == null then
      unavailable "${fetcher} ${url}"
    else
      { outPath = root; modelSource = { inherit url sha256; }; };
  tarball = { url, sha256 ? null, name ? "source" }: fetched "fetchTarball" url sha256;

  importAny =
    path:
    let
      none = { url = null; sha256 = null; };
      given = { modelRevisions = revisions; modelSource = path.modelSource or none; };
    in
    if toString path == root then args: import ./. (given // args)
    else known.${toString path} or (scopedImport scope path);

  ours = {
    fetchTarball = args: tarball (if isAttrs args then args else { url = args; });
    import = importAny;
    currentSystem = "x86_64-linux"; # that of the machine must not change a recipe
    functionArgs = function: function.__functionArgs or (builtins.functionArgs function);
    getEnv = _: checkout;
  }
  // listToAttrs (
    map (name: { inherit name; value = _: unavailable name; }) [
      "fetchGit" "fetchMercurial" "fetchTree" "fetchurl" "getFlake"
    ]
  );
  scope = {
    inherit (ours) fetchGit fetchTarball import;
    __findFile = _: name:
      if name == "nixpkgs" then fetched "findFile" "<nixpkgs>" null
      else throw "file '${name}' was not found in the Nix search path";
    builtins = builtins // ours;
  };
in
scope
