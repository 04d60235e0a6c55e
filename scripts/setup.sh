# shellcheck shell=bash disable=SC2154
# Sourced by ./millrace and ./test: Debian packages and building. Everything it says goes to stderr.

say() { printf '%s\n' "$*" >&2; }

# What it takes to build and run the program, and what the tests add to that.
build_packages() {
  local boost=libboost1.81-dev
  # Debian 12 has Boost 1.74 by default, without JSON; later releases have a default that is new enough.
  if [ -r /etc/os-release ] && ! grep -q '^VERSION_ID="12"' /etc/os-release; then boost=libboost-dev; fi
  echo g++ cmake ninja-build ccache git pkg-config "$boost" libfmt-dev libpcre2-dev libutf8proc-dev libedit-dev \
    libssl-dev libcurl4-openssl-dev libzmq3-dev libhiredis-dev
}
test_packages() { echo libgtest-dev clang libclang-rt-dev clang-format python3 xz-utils openssl; }

# need_packages NAME...: installs those that are missing, through sudo unless we are root. Nothing is missing: no word.
need_packages() {
  command -v dpkg-query >/dev/null || return 0 # not Debian: cmake will name what it does not find
  local present missing=() name
  present=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p') || true
  for name in "$@"; do
    grep -qxF -- "$name" <<<"$present" || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "millrace: Debian packages are missing; as root, run: apt-get install ${missing[*]}"
      return 1
    fi
    as_root=(sudo)
  fi
  say "millrace: installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  if ! {
    "${as_root[@]}" apt-get update -q || say "millrace: apt-get update failed; trying with the lists there are"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
  } >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    say "millrace: could not install ${missing[*]}; the lines above say why"
    return 1
  fi
  rm -f "$log"
}

# Two jobs unless MILLRACE_JOBS says otherwise: a template-heavy file can take a gigabyte to compile.
build_jobs() {
  local processors
  processors=$(nproc)
  echo "${MILLRACE_JOBS:-$((processors < 2 ? processors : 2))}"
}

# configure PRESET FOLDER FLAG...: runs cmake if FOLDER was not configured yet or a flag differs from last time.
configure() {
  local preset=$1 folder=$2 wanted
  shift 2
  wanted="$preset $*"
  if [ -e "$folder/build.ninja" ] && [ "$(cat "$folder/.configured" 2>/dev/null)" = "$wanted" ]; then return 0; fi
  mkdir -p "$folder"
  local log=$folder/configure.log
  if ! (cd "$root" && cmake --preset "$preset" -B "$folder" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
  printf '%s' "$wanted" >"$folder/.configured"
}

# build FOLDER TARGET...: ninja, with its output on stderr.
build() {
  local folder=$1
  shift
  ninja -C "$folder" -j "$(build_jobs)" "$@" >&2
}

# need_node: Node 20.19 or newer on PATH, with npm. Debian 12's own is older; then one from npm is put into build/node.
need_node() {
  local own=$root/build/node/node_modules/.bin kind
  PATH=$own:$PATH
  node_is_new && return 0
  command -v npm >/dev/null || need_packages nodejs npm || return 1
  node_is_new && return 0
  case $(uname -m) in aarch64) kind=arm64 ;; *) kind=x64 ;; esac
  mkdir -p "$own"
  npm install --prefix "$root/build/node" --no-save --no-audit --no-fund --loglevel=error \
    "node-linux-$kind@24.22.0" >&2 || return 1
  ln -sf "../node-linux-$kind/bin/node" "$own/node"
  hash -r
  node_is_new
}
node_is_new() {
  node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' \
    2>/dev/null
}
