# Shared by the scripts beside it: finds the repository and keeps `.venv` in step with pyproject.toml.
# Sourced, never run. Everything it says goes to stderr, so that a script's own output stays clean.
set -euo pipefail

CALLED_FROM="$PWD"
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT"

PYTHON="${PYTHON:-python3}"
VENV="$ROOT/.venv"

say() {
  printf '%s\n' "$*" >&2
}

# can_run_us PYTHON: whether it is there, and new enough.
can_run_us() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null
}

# quietly COMMAND...: what it says is shown only if it fails by itself; cut short, Python has a lot to say.
quietly() {
  local said
  said="$("$@" 2>&1)" || { say "$said"; return 1; }
}

# pip_quietly PYTHON ARGS...: pip without chatter; errors are still shown.
pip_quietly() {
  local python="$1"
  shift
  quietly "$python" -m pip -qq --disable-pip-version-check --no-input "$@"
}

# ensure_venv NAME EXTRA...: install the project into .venv unless that happened since pyproject.toml changed.
ensure_venv() {
  local stamp="$VENV/.installed-$1"
  shift
  if [[ -f "$stamp" && ! pyproject.toml -nt "$stamp" && -x "$VENV/bin/emceepee" ]]; then
    return
  fi
  trap 'say "interrupted before .venv was ready; the next start sees to it"; exit 130' INT
  make_venv
  say "installing emceepee into .venv, which takes about a minute: pip install -e . $*"
  pip_quietly "$VENV/bin/python" install --upgrade 'pip>=25.1' # the first with dependency groups
  pip_quietly "$VENV/bin/python" install --editable . "$@"
  trap - INT
  touch "$VENV/.installed-runtime" "$stamp" # every install holds the runtime
}

# make_venv: make .venv, unless there is one with a Python and a pip: what was cut short may lack either.
make_venv() {
  if can_run_us "$VENV/bin/python" && "$VENV/bin/python" -m pip --version > /dev/null 2>&1; then
    return
  fi
  if ! can_run_us "$PYTHON"; then
    say "needs Python 3.11 or newer; $PYTHON is $("$PYTHON" --version 2> /dev/null || echo none). Set PYTHON=/path/to/one"
    exit 1
  fi
  say "making .venv with $("$PYTHON" --version)"
  quietly "$PYTHON" -m venv --clear "$VENV"
}

ensure_runtime() {
  ensure_venv runtime
}

ensure_dev() {
  ensure_venv dev --group dev
}
