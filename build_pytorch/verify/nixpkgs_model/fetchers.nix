# The fetchers of sources. Nothing is fetched: each returns a fixed-output derivation, so that Nix
# checks the form of the hash, and its arguments can be read from the result.
{ lib, mkDerivation }:
let
  # nixpkgs accepts the hash under one of two names. For an empty hash, Nix assumes zeros and
  # warns; a missing hash is a hash of zeros.
  fixedOutput =
    name: mode: args: passthru:
    let
      given = args.hash or (args.sha256 or "");
      isSri = !(args ? sha256) && args.hash or null != "";
      checked = lib.optionalAttrs ((import ./builder.nix).checksHashes args) {
        outputHashMode = mode;
        outputHash = if args ? hash || args ? sha256 then given else lib.fakeHash;
        outputHashAlgo = if isSri then null else "sha256";
      };
    in
    lib.throwIf (args ? hash && args ? sha256) "multiple hashes passed: hash sha256" (
      mkDerivation ({ inherit name; passthru = { hash = given; } // passthru; } // checked)
    );
in
rec {
  fetchurl = lib.makeOverridable (
    { url, name ? baseNameOf url, hash ? "", sha256 ? "", postFetch ? "" }@args:
    lib.throwIf (!(args ? hash || args ? sha256))
      "fetchurl requires a hash for fixed-output derivation: ${url}"
      (fixedOutput name "flat" args { inherit url postFetch; })
  );

  # The hash is of the patch without what a server may change. Other arguments are those of fetchurl.
  fetchpatch =
    args:
    let
      own = [ "relative" "stripLen" "decode" "extraPrefix" "excludes" "includes" "revert" ];
      more = lib.attrNames (removeAttrs args [ "url" "name" "hash" "sha256" ]);
    in
    fetchurl (removeAttrs args own // { postFetch = toString ([ "normalised" ] ++ more); });

  # A commit of a repository. The other arguments are hashes.
  fetchFromGitHub = lib.makeOverridable (
    { owner, repo, tag ? null, rev ? null, name ? "source", fetchSubmodules ? false, ... }@args:
    lib.throwIf ((tag == null) == (rev == null))
      "fetchFromGitHub requires one of either `rev` or `tag` to be provided (not both)."
      (fixedOutput name "recursive" args {
        inherit owner repo fetchSubmodules;
        rev = if tag == null then rev else "refs/tags/${tag}";
      })
  );
}
