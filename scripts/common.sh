# Shared by the scripts beside it: finds the repository and keeps `.venv` in step with pyproject.toml.
# Sourced, never run. Everything it says goes to stderr, so that a script's own output stays clean.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT"

PYTHON="${PYTHON:-python3}"
VENV="$ROOT/.venv"

say() {
  printf '%s\n' "$*" >&2
}

# pip_quietly PYTHON ARGS...: pip without chatter; errors are still shown.
pip_quietly() {
  local python="$1"
  shift
  "$python" -m pip -qq --disable-pip-version-check --no-input "$@" >&2
}

# ensure_venv NAME EXTRA...: install the project into .venv unless that happened since pyproject.toml changed.
ensure_venv() {
  local stamp="$VENV/.installed-$1"
  shift
  if [[ -f "$stamp" && ! pyproject.toml -nt "$stamp" && -x "$VENV/bin/emceepee" ]]; then
    return
  fi
  if [[ ! -x "$VENV/bin/python" ]]; then
    say "making .venv with $("$PYTHON" --version)"
    "$PYTHON" -m venv "$VENV"
  fi
  say "installing emceepee into .venv: pip install -e . $*"
  pip_quietly "$VENV/bin/python" install --upgrade 'pip>=25.1' # the first with dependency groups
  pip_quietly "$VENV/bin/python" install --editable . "$@"
  touch "$VENV/.installed-runtime" "$stamp" # every install holds the runtime
}

ensure_runtime() {
  ensure_venv runtime
}

ensure_dev() {
  ensure_venv dev --group dev
}
