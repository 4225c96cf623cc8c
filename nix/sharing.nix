# Shared compilation: derivations of seeds, and variants that read them.
#
# A seed is a read-only compiler cache (ccache). It is made from the recipe of a variant: the same
# source, configuration and flags, of which only the C and C++ objects (kind cxx) or only the CUDA
# objects (kind cuda) are compiled. A variant that reads seeds is its recipe with ccache in front of
# the compilers. An object that no seed has is compiled, so that a seed decides how long a build
# takes and not what it yields.
{
  # Derivations by package name: all from which seeds are made, and those to return
  recipes
, plain

  # SEED -> { kind, package, nixpkgs }, and PACKAGE -> [ SEED ]
, seeds
, seedsOf

  # Whether nvcc writes the same object each time. It puts its process id into symbols otherwise.
, reproducibleCuda ? false
}:

let
  launchers = ccache: storage: ''
    ${builtins.readFile ./compiler_cache.sh}
    export CCACHE_DIR=$NIX_BUILD_TOP/build-pytorch-ccache
    export CCACHE_CONFIGPATH=$CCACHE_DIR/none
    export CCACHE_REMOTE_ONLY=1 CCACHE_REMOTE_STORAGE="${storage}"
    ${if reproducibleCuda then ''export NVCC_APPEND_FLAGS="''${NVCC_APPEND_FLAGS-} -frandom-seed=build-pytorch -objtemp"'' else ""}
    compilerCache ${ccache}/bin/ccache
  '';

  forget = "\ncompilerCacheForget\n";
  counts = "\ncompilerCacheCounts\n";

  fixed = old: {
    # nixpkgs passes -frandom-seed with the hash of the output to gcc, or with that of this path.
    env = (old.env or {}) // { NIX_OUTPATH_USED_AS_RANDOM_SEED = "/build-pytorch"; };
  };

  # The rules of CMake's Ninja files by which a kind of objects is compiled
  rules = { cxx = "\\(C\\|CXX\\)"; cuda = "CUDA"; };

  seed = name: { kind, package, nixpkgs }: recipes.${package}.overrideAttrs (old: fixed old // {
    pname = name;
    outputs = [ "out" ];

    # Neither installed nor tested
    phases = [ "unpackPhase" "patchPhase" "configurePhase" "buildPhase" ];
    preBuild = launchers nixpkgs.ccache "file:$out" + (old.preBuild or "") + forget;
    buildPhase = ''
      runHook preBuild
      mkdir -p $out
      readarray -t objects < <(
        ninja -C build -t targets all | sed -n 's/^\(.*\.o\): ${rules.${kind}}_COMPILER__.*/\1/p'
      )
      if [ ''${#objects[@]} -eq 0 ]; then
        echo "build-pytorch: no ${kind} objects in build/build.ninja" >&2
        exit 1
      fi
      ninja -C build -j "$NIX_BUILD_CORES" "''${objects[@]}"
      ${counts}
    '';
    passthru = { madeFrom = package; };
    meta = { inherit (old.meta) platforms; description = "Compiler cache for ${package} and others"; };
  });

  variant = package: old-package: names: old-package.overrideAttrs (old: fixed old // {
    preBuild =
      launchers seeds.${builtins.head names}.nixpkgs.ccache
        (builtins.concatStringsSep " " (map (name: "file:${caches.${name}}|read-only") names))
      + (old.preBuild or "") + forget;
    postBuild = (old.postBuild or "") + counts;
    passthru = (old.passthru or {}) // { seeds = names; };
  });

  caches = builtins.mapAttrs seed seeds;
in
builtins.mapAttrs (package: recipe:
  if seedsOf ? ${package} && seedsOf.${package} != [] then variant package recipe seedsOf.${package} else recipe
) plain // caches
