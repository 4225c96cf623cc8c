# The fetchers of sources. Nothing is fetched: each returns a fixed-output derivation, so that Nix
# checks the form of the hash, and its arguments can be read from the result.
{ lib, mkDerivation }:
let
  standIn = import ./builder.nix;

  # nixpkgs accepts the hash under one of three names. For an empty hash, Nix assumes zeros and
  # warns; a missing hash is a hash of zeros.
  fixedOutput =
    fetcher: name: mode: args: passthru:
    let
      given = lib.filter (name: args ? ${name}) [ "hash" "sha256" "outputHash" ];
      hash = if given == [ ] then lib.fakeHash else args.${lib.head given};
      isSri = given == [ ] || (lib.head given == "hash" && hash != "");
    in
    lib.throwIf (lib.length given > 1) "${fetcher}: multiple hashes passed: ${toString given}" (
      mkDerivation (
        {
          inherit name;
          passthru = { hash = args.hash or args.sha256 or args.outputHash or ""; } // passthru;
        }
        // lib.optionalAttrs (standIn.checksHashes args) {
          outputHashMode = mode;
          outputHash = hash;
          outputHashAlgo = if isSri then null else args.outputHashAlgo or "sha256";
        }
      )
    );

  fetchurl = lib.makeOverridable (
    {
      url ? "", urls ? [ url ], name ? baseNameOf (lib.head urls), hash ? "", sha256 ? "",
      outputHash ? "", outputHashAlgo ? "", recursiveHash ? false, curlOpts ? "", curlOptsList ? [ ],
      downloadToTemp ? false, executable ? false, meta ? { }, nativeBuildInputs ? [ ],
      passthru ? { }, postFetch ? "", preferLocalBuild ? true, showURLs ? false,
    }@args:
    lib.throwIfNot (args ? hash || args ? sha256 || args ? outputHash)
      "fetchurl requires a hash for fixed-output derivation: ${toString urls}"
      (
        fixedOutput "fetchurl" name (if recursiveHash then "recursive" else "flat") args (
          { url = lib.head urls; inherit postFetch; } // passthru
        )
      )
  );

  # The hash is that of the patch without the parts that a server may change (index lines, order of
  # files), so it differs from that of the file. The other arguments are those of fetchurl.
  fetchpatch =
    args:
    fetchurl (
      removeAttrs args [ "relative" "stripLen" "decode" "extraPrefix" "excludes" "includes" "revert" ]
      // { postFetch = "normalise"; }
    );

  # A commit of a repository. The other arguments are hashes.
  fetchFromGitHub = lib.makeOverridable (
    { owner, repo, tag ? null, rev ? null, name ? "source", fetchSubmodules ? false, ... }@args:
    lib.throwIf ((tag == null) == (rev == null))
      "fetchFromGitHub requires one of either `rev` or `tag` to be provided (not both)."
      (
        fixedOutput "fetchFromGitHub" name "recursive" args {
          inherit owner repo fetchSubmodules;
          rev = if tag == null then rev else "refs/tags/${tag}";
        }
      )
  );
in
{
  inherit fetchurl fetchpatch fetchFromGitHub;
}
