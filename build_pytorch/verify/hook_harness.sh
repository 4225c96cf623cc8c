# Runs hooks as stdenv does: FOLDER NUMBER MACHINE...; a machine is "CORES PROCESSORS".
# FOLDER has `programs`, and a folder for each number below NUMBER with the hooks by name,
# `environment` and `source`. A run leaves `output` and, if the hooks run to their end, `exported`,
# `options` and `jobs`. It is on the first machine; on the others, hooks change no files.

shopt -s inherit_errexit
set -o pipefail
ulimit -f 20480 -t 2
nproc() { echo "$processors"; }
patchShebangs() { :; }
nixLog() { :; }
substituteInPlace() {
  local file=$1 text
  shift
  IFS= read -r -d '' text < "$file" || true
  while [ $# -gt 0 ]; do
    if [[ $1 == --replace-fail && -n $text && $text != *"$2"* ]]; then
      echo "substituteInPlace: $2 is not in $file" >&2
      return 1
    fi
    text=${text//"$2"/"$3"}
    shift 3
  done
  printf %s "$text" > "$file"
}
without_files() {
  local command
  for command in cat chmod cp grep ln mkdir mv rm sed substituteInPlace touch; do
    eval "$command() { :; }"
  done
}
hook() {
  local text
  IFS= read -r -d '' text < "$folder/$1" || true
  eval "$text"
}
hooks_on() {
  export NIX_BUILD_CORES=$1
  processors=$2
  # Hooks do the same whether this machine has the folder of `cache` or not.
  CCACHE_REMOTE_STORAGE=none
  . "$folder/environment"
  set -e
  hook postPatch
  hook preConfigure
  hook preBuild
  options=$-
  set +e
  printf '%s\n' "$1 of $2 cores=MAX_JOBS=${MAX_JOBS-(not set)} NIX_BUILD_CORES=$NIX_BUILD_CORES" \
    >> "$folder/jobs"
}
run() {
  local folder=$1 machine
  shift
  cp -r "$folder/source" "$folder/copy"
  cd "$folder/source" || exit
  exec > "$folder/output" 2>&1 < /dev/null
  (
    hooks_on $1
    { printf '%s ' "$options"; umask; } > "$folder/options"
    compgen -e > "$folder/names"
    while read -r name; do
      printf '%s=%s\0' "$name" "${!name}"
    done < "$folder/names" > "$folder/exported"
  )
  [ -s "$folder/exported" ] || exit
  cd "$folder/copy" || exit
  without_files
  for machine in "${@:2}"; do
    (hooks_on $machine) > /dev/null 2>&1
  done
}

root=$1 number=$2
. "$root/programs"
for ((n = 0; n < number; n++)); do
  (run "$root/$n" "${@:3}") &
  ((n % 32 < 31)) || wait
done
wait
