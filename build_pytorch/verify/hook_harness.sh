# Runs the hooks of a recipe as stdenv does, in the folder of a run: `run FOLDER CORES PROCESSORS`.
# The folder holds the hooks by name, `environment` and `source`; a run leaves `output` and, if the
# hooks run to their end, `exported`.

shopt -s inherit_errexit
set -o pipefail
ulimit -f 20480 -t 2
nproc() { echo "$processors"; }
patchShebangs() { :; }
nixLog() { :; }
concatTo() { :; }
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
run() {
  folder=$1
  cd "$folder/source" || exit
  exec > "$folder/output" 2>&1 < /dev/null
  processors=$3
  export NIX_BUILD_CORES=$2
  # Hooks do the same whether this machine has the folder of `cache` or not.
  CCACHE_REMOTE_STORAGE=none
  . "$folder/environment"
  set -e
  hook postPatch
  hook preConfigure
  hook preBuild
  set +e
  compgen -e > "$folder/names"
  while read -r name; do
    printf '%s=%s\0' "$name" "${!name}"
  done < "$folder/names" > "$folder/exported"
}
