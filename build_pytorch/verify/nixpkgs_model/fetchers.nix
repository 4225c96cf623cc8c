# The fetchers of sources. Nothing is fetched: each returns a fixed-output derivation, so that Nix
# checks the form of the hash, and its arguments can be read from the result.
{ lib, mkDerivation }:
let
  # nixpkgs accepts the hash under one of three names. For an empty hash, Nix assumes zeros and
  # warns; a missing hash is a hash of zeros.
  normalizedHash =
    fetcher: args:
    let
      given = builtins.filter (name: args ? ${name}) [
        "hash"
        "sha256"
        "outputHash"
      ];
      value = args.${builtins.head given};
    in
    if builtins.length given > 1 then
      throw "${fetcher}: multiple hashes passed: ${toString given}"
    else if given == [ ] then
      {
        outputHashAlgo = null;
        outputHash = lib.fakeHash;
      }
    else if given == [ "hash" ] && value != "" then
      {
        outputHashAlgo = null;
        outputHash = value;
      }
    else
      {
        outputHashAlgo = args.outputHashAlgo or "sha256";
        outputHash = value;
      };

  standIn = import ./builder.nix;

  shownHash = args: args.hash or args.sha256 or args.outputHash or "";

  fixedOutput =
    fetcher: name: recursive: args: passthru:
    mkDerivation (
      {
        inherit name;
        preferLocalBuild = true;
        passthru = {
          hash = shownHash args;
        }
        // passthru;
      }
      // lib.optionalAttrs (standIn.checksHashes args) (
        { outputHashMode = if recursive then "recursive" else "flat"; } // normalizedHash fetcher args
      )
    );

  fetchurl = lib.makeOverridable (
    {
      url ? "",
      urls ? [ ],
      name ? baseNameOf (builtins.head (urls ++ [ url ])),
      hash ? "",
      sha256 ? "",
      outputHash ? "",
      outputHashAlgo ? "",
      recursiveHash ? false,
      curlOpts ? "",
      curlOptsList ? [ ],
      downloadToTemp ? false,
      executable ? false,
      meta ? { },
      nativeBuildInputs ? [ ],
      netrcImpureEnvVars ? [ ],
      netrcPhase ? null,
      passthru ? { },
      postFetch ? "",
      preferLocalBuild ? true,
      showURLs ? false,
    }@args:
    assert lib.assertMsg (url != "" || urls != [ ])
      "fetchurl requires either `url` or `urls` to be set: ${builtins.toJSON (builtins.attrNames args)}";
    assert lib.assertMsg (args ? hash || args ? sha256 || args ? outputHash)
      "fetchurl requires a hash for fixed-output derivation: ${lib.concatStringsSep ", " (urls ++ [ url ])}";
    fixedOutput "fetchurl" name recursiveHash args (
      {
        url = builtins.head (urls ++ [ url ]);
        inherit postFetch;
      }
      // passthru
    )
  );

  # The hash is that of the patch without the parts that a server may change (index lines, order of
  # files), so it differs from that of the file. The other arguments are those of fetchurl.
  fetchpatch =
    {
      relative ? "",
      stripLen ? 0,
      decode ? "cat",
      extraPrefix ? null,
      excludes ? [ ],
      includes ? [ ],
      revert ? false,
      postFetch ? "",
      nativeBuildInputs ? [ ],
      ...
    }@args:
    assert lib.assertMsg (excludes == [ ] || includes == [ ])
      "fetchpatch: cannot use excludes and includes simultaneously";
    fetchurl (
      removeAttrs args [
        "relative"
        "stripLen"
        "decode"
        "extraPrefix"
        "excludes"
        "includes"
        "revert"
      ]
      // {
        postFetch = "normalise";
      }
    );

  # The other arguments are hashes and the arguments of fetchgit and fetchzip.
  fetchFromForge =
    fetcher: host:
    lib.makeOverridable (
      {
        owner,
        repo,
        tag ? null,
        rev ? null,
        name ? "source",
        fetchSubmodules ? false,
        leaveDotGit ? false,
        deepClone ? false,
        forceFetchGit ? false,
        fetchLFS ? false,
        sparseCheckout ? null,
        passthru ? { },
        ...
      }@args:
      assert lib.assertMsg ((tag == null) != (rev == null))
        "${fetcher} requires one of either `rev` or `tag` to be provided (not both).";
      fixedOutput fetcher name true args (
        {
          inherit
            owner
            repo
            tag
            fetchSubmodules
            ;
          rev = if tag == null then rev else "refs/tags/${tag}";
          gitRepoUrl = "https://${host}/${owner}/${repo}.git";
        }
        // passthru
      )
    );
in
{
  inherit fetchurl fetchpatch;
  fetchpatch2 = fetchpatch;
  fetchFromGitHub = fetchFromForge "fetchFromGitHub" "github.com";
  fetchFromGitLab = fetchFromForge "fetchFromGitLab" "gitlab.com";

  fetchzip =
    {
      url ? "",
      urls ? [ ],
      name ? "source",
      stripRoot ? true,
      extension ? null,
      ...
    }@args:
    fetchurl (
      removeAttrs args [
        "stripRoot"
        "extension"
        "extraPostFetch"
      ]
      // {
        inherit name;
        recursiveHash = true;
      }
    );

  fetchgit = lib.makeOverridable (
    {
      url,
      tag ? null,
      rev ? null,
      name ? "source",
      hash ? "",
      sha256 ? "",
      outputHash ? "",
      outputHashAlgo ? "",
      branchName ? null,
      deepClone ? false,
      fetchLFS ? false,
      fetchSubmodules ? true,
      leaveDotGit ? false,
      postFetch ? "",
      preFetch ? "",
      sparseCheckout ? [ ],
      nonConeMode ? false,
      nativeBuildInputs ? [ ],
      preferLocalBuild ? true,
      netrcPhase ? null,
      netrcImpureEnvVars ? [ ],
      allowedRequisites ? null,
      passthru ? { },
      meta ? { },
    }@args:
    fixedOutput "fetchgit" name true args (
      {
        inherit url tag fetchSubmodules;
        rev = if tag == null then rev else "refs/tags/${tag}";
        gitRepoUrl = url;
      }
      // passthru
    )
  );
}
