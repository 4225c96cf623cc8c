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
  # Before the hook that configures: CMake takes the launchers from the environment. PyTorch's own
  # search for ccache is off, because it would use a cache below HOME.
  #
  # ccache sees neither what a compiler wrapper adds nor what nvcc reads from the environment, and
  # all compilers of a Nix store have the same time stamp. The paths of the compilers and these
  # variables are therefore part of each key.
  cppFlags = "(-isystem|-idirafter) +[^ ]+|-fmacro-prefix-map=[^ ]*";
  launchers = ccache: storage: ''
    export USE_CCACHE=0
    export CCACHE_DIR=$NIX_BUILD_TOP/build-pytorch-ccache
    export CCACHE_CONFIGPATH=$CCACHE_DIR/none CCACHE_STATSLOG=$CCACHE_DIR/stats.log
    export CCACHE_REMOTE_ONLY=1 CCACHE_REMOTE_STORAGE="${storage}"
    mkdir -p "$CCACHE_DIR"
    ${if reproducibleCuda then ''export NVCC_APPEND_FLAGS="''${NVCC_APPEND_FLAGS-} -frandom-seed=build-pytorch -objtemp"'' else ""}
    CCACHE_COMPILERCHECK="string:$(
      for compiler in "''${CC:-cc}" "''${CXX:-c++}" nvcc; do
        realpath "$(command -v "$compiler")" || echo "no $compiler"
      done
      for variable in ''${!NIX_CFLAGS@} ''${!NIX_CXX@} ''${!NIX_HARDENING@} ''${!NIX_ENFORCE@} ''${!NIX_CC@} ''${!NIX_GCC@} ''${!NVCC_@}; do
        echo "$variable=''${!variable}" | sed -E 's/-frandom-seed=[^ ]*|${cppFlags}//g'
      done
    )"
    # What the wrapper tells the preprocessor is in its output, where ccache runs it. Where it does
    # not (direct mode), the key has these variables, of which this one has no other effect on C++.
    export OBJC_INCLUDE_PATH="$(echo "''${NIX_CFLAGS_COMPILE-}" | grep -oE -- '${cppFlags}' | tr -s '\n ' ':')"
    CCACHE_COMPILERCHECK=''${CCACHE_COMPILERCHECK//$'\n'/;}
    export CCACHE_COMPILERCHECK
    for language in C CXX CUDA; do
      export CMAKE_''${language}_COMPILER_LAUNCHER=${ccache}/bin/ccache
    done
  '';

  # What CMake compiles to look at the compilers is not counted.
  onlyBuild = ''

    : > "$CCACHE_STATSLOG"
  '';

  # One line with the counts, one with each source that was compiled. The log is the only place: a
  # file in the output would make it depend on what was in the caches.
  statistics = ''
    awk '
      /^# / { source = substr($0, 3) }
      /^(direct|preprocessed)_cache_hit$/ { hits++ }
      /^cache_miss$/ { misses++; if (misses <= 50) print "build-pytorch: compiled here: " source }
      END { print "build-pytorch: compiler cache: " hits + 0 " hits, " misses + 0 " misses" }
    ' "$CCACHE_DIR/stats.log"
  '';

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
    preBuild = launchers nixpkgs.ccache "file:$out" + (old.preBuild or "") + onlyBuild;
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
      ${statistics}
    '';
    meta = { inherit (old.meta) platforms; description = "Compiler cache for ${package} and others"; };
  });

  variant = package: old-package: names: old-package.overrideAttrs (old: fixed old // {
    preBuild =
      launchers seeds.${builtins.head names}.nixpkgs.ccache
        (builtins.concatStringsSep " " (map (name: "file:${caches.${name}}|read-only") names))
      + (old.preBuild or "") + onlyBuild;
    postBuild = (old.postBuild or "") + statistics;
    passthru = (old.passthru or {}) // { seeds = names; };
  });

  caches = builtins.mapAttrs seed seeds;
in
builtins.mapAttrs (package: recipe:
  if seedsOf ? ${package} && seedsOf.${package} != [] then variant package recipe seedsOf.${package} else recipe
) plain // caches
