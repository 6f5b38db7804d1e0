# Shared by tools/build, tools/demo and tools/test: what is needed, and how it gets here. Sourced, not run.
# shellcheck shell=bash
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
BUILD="${SHARDWRIGHT_BUILD_DIR:-$ROOT/build}"
VENV="$ROOT/.venv"
CACHE="$ROOT/.cache"
INSTALL=1
for arg in "$@"; do [ "$arg" = "--no-install" ] && INSTALL=0; done

DEBIAN_PACKAGES=(build-essential cmake ninja-build ccache git python3 python3-venv python3-pip libyaml-cpp-dev libfmt-dev catch2 libcli11-dev
  nlohmann-json3-dev libkainjow-mustache-dev libtomlplusplus-dev libclang-19-dev llvm-19-dev libgloo-dev libmimalloc-dev)
# The versions that the figures in docs/measured.md were taken with.
PYTHON_PACKAGES=(torch==2.15.0 numpy pyyaml safetensors pybind11 ninja pytest-lsp ruff==0.17.6 clang-format==14.0.6)

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

need_debian() {
  local missing=()
  for p in "${DEBIAN_PACKAGES[@]}"; do dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p"); done
  [ ${#missing[@]} = 0 ] && return 0
  if [ "$INSTALL" = 0 ]; then echo "missing Debian packages: ${missing[*]}"; MISSING=1; return 0; fi
  say "installing Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
}

# pip packages into .venv, remembered by a stamp of the list
need_venv() {
  local stamp="$VENV/.shardwright-packages" want="${PYTHON_PACKAGES[*]}"
  [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return 0
  if [ -x "$VENV/bin/python" ] && "$VENV/bin/python" - "${PYTHON_PACKAGES[@]}" <<'PY' 2>/dev/null
import importlib.metadata as m, sys
for spec in sys.argv[1:]:
    name, _, version = spec.partition("==")
    if version and m.version(name) != version: sys.exit(1)
    m.version(name)
PY
  then echo "$want" > "$stamp"; return 0; fi
  if [ "$INSTALL" = 0 ]; then echo "missing Python packages in .venv: $want"; MISSING=1; return 0; fi
  say "creating .venv with $want (a few minutes, about 5 GB)"
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check "${PYTHON_PACKAGES[@]}"
  echo "$want" > "$stamp"
}

# The real models of tests/corpus, by name and version, into an ignored folder.
need_corpus() {
  local stamp="$CACHE/corpus/.stamp" want
  want="$(sha256sum "$ROOT/tests/corpus/requirements.txt" | cut -c1-64)"
  [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return 0
  if [ "$INSTALL" = 0 ]; then echo "missing: the corpus packages (tests/corpus/requirements.txt, openai-whisper's source)"; MISSING=1; return 0; fi
  say "fetching the corpus models (about 300 MB)"
  mkdir -p "$CACHE/corpus" "$CACHE/sdist"
  "$VENV/bin/pip" install -q --disable-pip-version-check --no-deps --no-compile --upgrade --target "$CACHE/corpus" -r "$ROOT/tests/corpus/requirements.txt"
  [ -f "$CACHE/sdist/openai_whisper-20250625.tar.gz" ] || "$VENV/bin/pip" download -q --disable-pip-version-check --no-deps --no-build-isolation --no-binary :all: openai-whisper==20250625 -d "$CACHE/sdist" ||
    "$VENV/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: openai-whisper==20250625 -d "$CACHE/sdist"
  tar -xzf "$CACHE/sdist/openai_whisper-20250625.tar.gz" -C "$CACHE/corpus" --strip-components=1 openai_whisper-20250625/whisper
  echo "$want" > "$stamp"
}

# Megatron-Core and h5py for the tests of the targets built on Megatron, into a folder of their own.
need_megatron() {
  local stamp="$CACHE/megatron/.stamp" want
  want="$(sha256sum "$ROOT/tests/onescience/requirements.txt" | cut -c1-64)"
  [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return 0
  if [ "$INSTALL" = 0 ]; then echo "missing: megatron-core and h5py (tests/onescience/requirements.txt)"; MISSING=1; return 0; fi
  mkdir -p "$CACHE/megatron"
  "$VENV/bin/pip" install -q --disable-pip-version-check --no-deps --no-compile --upgrade --target "$CACHE/megatron" -r "$ROOT/tests/onescience/requirements.txt"
  echo "$want" > "$stamp"
}

build_all() {
  if [ "$INSTALL" = 0 ]; then return 0; fi
  say "building (tree, plan, convert, lint and the runtime)"
  cmake -S "$ROOT" -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSHARDWRIGHT_RUNTIME=ON -DSHARDWRIGHT_PYTHON="$VENV/bin/python" >"$BUILD.configure.log" 2>&1 || { cat "$BUILD.configure.log" >&2; exit 2; }
  rm -f "$BUILD.configure.log"
  ninja -C "$BUILD" | tail -n 3 >&2
  # Programs that convert wrote import shardwright.parallel from here when they are run with this environment's Python.
  echo "$ROOT/runtime/python" > "$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shardwright.pth"
}
finish_no_install() { if [ "$INSTALL" = 0 ]; then [ "${MISSING:-0}" = 0 ] && echo "nothing is missing"; exit 0; fi; }
