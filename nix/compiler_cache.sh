# A compiler cache for a build of PyTorch: functions of bash for the hooks of a derivation, before
# the hook that configures. The caller has set CCACHE_DIR or CCACHE_REMOTE_STORAGE.

# Put ccache ($1) in front of the compilers. CMake takes the launchers from the environment.
# PyTorch's own search for ccache is off, because it would use a cache below HOME.
#
# ccache sees neither what a compiler wrapper adds nor what nvcc reads from the environment, and
# all compilers of a Nix store have the same time stamp. The paths of the compilers and these
# variables are therefore part of each key.
compilerCache() {
  local compiler variable language
  local cppFlags='(-isystem|-idirafter) +[^ ]+|-fmacro-prefix-map=[^ ]*'
  export USE_CCACHE=0
  mkdir -p "$NIX_BUILD_TOP/build-pytorch-ccache"
  export CCACHE_STATSLOG=$NIX_BUILD_TOP/build-pytorch-ccache/stats.log
  CCACHE_COMPILERCHECK="string:$(
    for compiler in "${CC:-cc}" "${CXX:-c++}" nvcc; do
      realpath "$(command -v "$compiler")" 2>/dev/null || echo "no $compiler"
    done
    for variable in ${!NIX_CFLAGS@} ${!NIX_CXX@} ${!NIX_HARDENING@} ${!NIX_ENFORCE@} ${!NIX_CC@} ${!NIX_GCC@} ${!NVCC_@}; do
      echo "$variable=${!variable}" | sed -E "s/-frandom-seed=[^ ]*|$cppFlags//g"
    done
  )"
  # What the wrapper tells the preprocessor is in its output, where ccache runs it. Where it does
  # not (direct mode), the key has these variables, of which this one has no other effect on C++.
  export OBJC_INCLUDE_PATH="$(echo "${NIX_CFLAGS_COMPILE-}" | grep -oE -- "$cppFlags" | tr -s '\n ' ':')"
  CCACHE_COMPILERCHECK=${CCACHE_COMPILERCHECK//$'\n'/;}
  export CCACHE_COMPILERCHECK
  for language in C CXX CUDA; do
    export "CMAKE_${language}_COMPILER_LAUNCHER=$1"
  done
}

# Do not count what CMake compiled to look at the compilers.
compilerCacheForget() {
  if [ -n "${CCACHE_STATSLOG-}" ]; then : > "$CCACHE_STATSLOG"; fi
}

# Print one line with the counts and one with each source that was compiled. The log is the only
# place: a file in the output would make it depend on what was in the caches.
compilerCacheCounts() {
  if [ ! -e "${CCACHE_STATSLOG-}" ]; then return; fi
  awk '
    /^# / { source = substr($0, 3) }
    /^(direct|preprocessed)_cache_hit$/ { hits++ }
    /^cache_miss$/ { misses++; if (misses <= 50) print "build-pytorch: compiled here: " source }
    END { print "build-pytorch: compiler cache: " hits + 0 " hits, " misses + 0 " misses" }
  ' "$CCACHE_STATSLOG"
}
