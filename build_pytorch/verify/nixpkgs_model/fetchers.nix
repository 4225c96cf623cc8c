# The fetchers of sources. Nothing is fetched: each returns a fixed-output derivation, so that Nix
# checks the form of the hash, and its arguments can be read from the result.
{ lib, mkDerivation }:
let
  standIn = import ./builder.nix;

  # nixpkgs accepts the hash under one of three names. For an empty hash, Nix assumes zeros and
  # warns; a missing hash is a hash of zeros.
  normalizedHash =
    fetcher: args:
    let
      given = lib.filter (name: args ? ${name}) [ "hash" "sha256" "outputHash" ];
      name = lib.head given;
    in
    if lib.length given > 1 then
      throw "${fetcher}: multiple hashes passed: ${toString given}"
    else
      {
        outputHash = if given == [ ] then lib.fakeHash else args.${name};
        outputHashAlgo =
          if given == [ ] || (name == "hash" && args.hash != "") then
            null
          else
            args.outputHashAlgo or "sha256";
      };

  fixedOutput =
    fetcher: name: recursive: args: passthru:
    mkDerivation (
      {
        inherit name;
        preferLocalBuild = true;
        passthru = { hash = args.hash or args.sha256 or args.outputHash or ""; } // passthru;
      }
      // lib.optionalAttrs (standIn.checksHashes args) (
        { outputHashMode = if recursive then "recursive" else "flat"; } // normalizedHash fetcher args
      )
    );

  fetchurl = lib.makeOverridable (
    {
      url ? "", urls ? [ ],
      name ? baseNameOf (lib.head (urls ++ [ url ])),
      hash ? "", sha256 ? "", outputHash ? "", outputHashAlgo ? "", recursiveHash ? false,
      curlOpts ? "", curlOptsList ? [ ], downloadToTemp ? false, executable ? false, meta ? { },
      nativeBuildInputs ? [ ], passthru ? { }, postFetch ? "", preferLocalBuild ? true,
      showURLs ? false,
    }@args:
    assert lib.assertMsg (url != "" || urls != [ ])
      "fetchurl requires either `url` or `urls` to be set: ${builtins.toJSON (lib.attrNames args)}";
    assert lib.assertMsg (args ? hash || args ? sha256 || args ? outputHash)
      "fetchurl requires a hash for fixed-output derivation: ${lib.concatStringsSep ", " (urls ++ [ url ])}";
    fixedOutput "fetchurl" name recursiveHash args (
      { url = lib.head (urls ++ [ url ]); inherit postFetch; } // passthru
    )
  );

  # The hash is that of the patch without the parts that a server may change (index lines, order of
  # files), so it differs from that of the file. The other arguments are those of fetchurl.
  fetchpatch =
    {
      relative ? "", stripLen ? 0, decode ? "cat", extraPrefix ? null, excludes ? [ ],
      includes ? [ ], revert ? false, postFetch ? "", nativeBuildInputs ? [ ],
      ...
    }@args:
    assert lib.assertMsg (excludes == [ ] || includes == [ ])
      "fetchpatch: cannot use excludes and includes simultaneously";
    fetchurl (
      removeAttrs args [
        "relative" "stripLen" "decode" "extraPrefix" "excludes" "includes" "revert"
      ]
      // { postFetch = "normalise"; }
    );

  # A commit, from a forge or from a URL. The other arguments are hashes and those of fetchgit.
  fetchCommit =
    fetcher: urlOf:
    lib.makeOverridable (
      { tag ? null, rev ? null, name ? "source", fetchSubmodules ? false, passthru ? { }, ... }@args:
      assert lib.assertMsg ((tag == null) != (rev == null))
        "${fetcher} requires one of either `rev` or `tag` to be provided (not both).";
      fixedOutput fetcher name true args (
        {
          inherit tag fetchSubmodules;
          owner = args.owner or null;
          repo = args.repo or null;
          rev = if tag == null then rev else "refs/tags/${tag}";
          gitRepoUrl = urlOf args;
        }
        // passthru
      )
    );
  fromForge = host: { owner, repo, ... }: "https://${host}/${owner}/${repo}.git";
in
{
  inherit fetchurl fetchpatch;
  fetchpatch2 = fetchpatch;
  fetchFromGitHub = fetchCommit "fetchFromGitHub" (fromForge "github.com");
  fetchFromGitLab = fetchCommit "fetchFromGitLab" (fromForge "gitlab.com");
  fetchgit = fetchCommit "fetchgit" ({ url, ... }: url);
  fetchzip =
    { name ? "source", ... }@args:
    fetchurl (
      removeAttrs args [ "stripRoot" "extension" "extraPostFetch" ]
      // { inherit name; recursiveHash = true; }
    );
}
