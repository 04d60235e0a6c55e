# shellcheck shell=bash disable=SC2154
# Sourced by ./test: the groups, and the ways a group runs its programs.

# Folders of tests/ whose programs also run under ASan and UBSan: parsers, cache, engine, server, and what they stand on
# (the others only in --full). The longest first, because two run at a time.
sanitized_programs=(server model engine text tensor cache base)
# Attention's largest comparisons are left to the release build: the same kernels run in its other tests.
sanitized_never=Attend.ManyHeadsOfOneLatent:Attend.ChunksThreadsAndPagesDoNotShow
sanitized_rest=(backend session apps bench eval plan report hub tier grammar process shrink)
# Their tests that compare many answers and go the ways of others once more: with sanitizers only in --full.
sanitized_later='ThoughtLimit.AloneInACrowd*:Bound.AloneInACrowd*:KvKeep.*:*ForwardTest.ChunksGiveTheSameBits*'
sanitized_later+=':*ForwardTest.NeighboursDoNotMatter*:DraftRule.*:TreeControl.*:SamplerShortlist.*'
sanitized_later+=':*EngineUnderPressure.*:Slo.KeepsItsTargets*:Simulation.SeedsHold:ThoughtLimit.EveryName*'
sanitized_later+=':Tools.RequiredNamedAndStrict*:OpenApi.AndTheServer*:Bound.EveryFieldBinds:*Resume.AtEveryEvent*'
sanitized_later+=':TrainedMedusa.*:*TrainedHead.*:Speculation.EveryDrafter*:*Tree.GivesThePlain*'
# Folders whose programs use several threads, for ThreadSanitizer.
threaded_programs=(base backend engine session server eval)
# Of those, what runs on one thread, or takes every format through the same loops of threads once more.
single_threaded='CallCases.*:Attend.MatchesReference:Attend.ManyHeadsOfOneLatent:Attend.PageSizeDoesNotShow'
single_threaded+=:Attend.ChunksThreadsAndPagesDoNotShow
single_threaded+=':Attend.CodesAreMultipliedAsTheyAre:Simulation.SeedsHold:DraftControl.*'
fuzz_seconds=${MILLRACE_FUZZ_SECONDS:-3}
fuzz_long_seconds=${MILLRACE_FUZZ_LONG_SECONDS:-120}

# prepare PRESET FOLDER "TARGETS" FLAG...: configures and builds; a failure is counted once and ends the group.
prepare() {
  local preset=$1 folder=$2 targets=$3 log
  shift 3
  log=$logs/build-${folder##*/}.log
  if ! configure "$preset" "$folder" "$@"; then
    failed "configure $preset"
    return 1
  fi
  # shellcheck disable=SC2086
  if ! build "$folder" $targets 2> >(tee "$log" >&2); then
    failed "build $preset (see ${log#"$root"/})"
    return 1
  fi
}

# The number a GoogleTest log states on its line of this kind ("PASSED", "FAILED", "SKIPPED"), 0 if it has none.
gtest_count() {
  local number
  number=$(grep -oE "^\[ +$2 +\] [0-9]+ tests?" "$1" | grep -oE '[0-9]+' | tail -n 1)
  echo "${number:-0}"
}

# The tests a GoogleTest log says were skipped, a line each: NAME: WHY.
gtest_skips() {
  awk '/: Skipped$/ { getline why; next }
       /^\[  SKIPPED \] .* \([0-9]+ ms\)$/ {
         sub(/^\[  SKIPPED \] /, ""); sub(/(, where .*)? \([0-9]+ ms\)$/, ""); print $0 ": " why }' "$1"
}

# run_program NAME SECONDS COMMAND...: one GoogleTest program.
run_program() {
  local name=$1 seconds=$2 code=0
  shift 2
  timeout "$seconds" "$@" >"$logs/$name.log" 2>&1 || code=$?
  count_program "$name" "$code"
}

# count_program NAME CODE: adds up what a program's log says. One that crashed or hung counts as a failure even if it
# had not printed one.
count_program() {
  local name=$1 code=$2 log=$logs/$1.log good bad missing skip
  good=$(gtest_count "$log" PASSED) bad=$(gtest_count "$log" FAILED) missing=$(gtest_count "$log" SKIPPED)
  if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  if [ "$code" -eq 0 ] && [ "$good" -eq 0 ] && [ "$missing" -eq 0 ]; then bad=1; fi # ran nothing
  passed "$good"
  while IFS= read -r skip; do skipped "$name: $skip"; done < <(gtest_skips "$log")
  if [ "$bad" -gt 0 ]; then
    failed "$bad of $name (exit code $code, see ${log#"$root"/})" "$bad"
    grep -E '^\[  FAILED  \]|Failure$|ERROR: |runtime error:' "$log" | head -n 20
    [ "$code" -lt 124 ] || tail -n 30 "$log"
  fi
  printf '   %-28s %5d passed %3d failed %3d skipped\n' "$name" "$good" "$bad" "$missing"
}

# run_lines NAME SECONDS COMMAND...: a script that prints a line "ok - WHAT", "not ok - WHAT" or "skip - WHAT" per test.
run_lines() {
  local name=$1 seconds=$2 code=0
  shift 2
  timeout "$seconds" "$@" >"$logs/$name.log" 2>&1 || code=$?
  count_lines "$name" "$code"
}

# count_lines NAME CODE: adds up what a script's log says.
count_lines() {
  local name=$1 code=$2 log=$logs/$1.log good bad missing skip
  good=$(grep -c '^ok - ' "$log") bad=$(grep -c '^not ok - ' "$log") missing=$(grep -c '^skip - ' "$log")
  if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then
    bad=1
    tail -n 20 "$log"
  elif [ "$good" -eq 0 ] && [ "$bad" -eq 0 ]; then
    bad=1
  fi
  passed "$good"
  while IFS= read -r skip; do skipped "$name: $skip"; done < <(sed -n 's/^skip - //p' "$log")
  if [ "$bad" -gt 0 ]; then
    failed "$bad of $name (see ${log#"$root"/})" "$bad"
    grep -A 6 '^not ok - ' "$log" | head -n 60
  fi
  printf '   %-28s %5d passed %3d failed %3d skipped\n' "$name" "$good" "$bad" "$missing"
}

# run_scripts SECONDS PROGRAM SCRIPT...: Python scripts that are given a program and need no quiet machine, two at a
# time.
run_scripts() {
  local seconds=$1 program=$2 script name
  shift 2
  # shellcheck disable=SC2016
  printf '%s\n' "$@" | xargs -P "$(build_jobs)" -I '{}' bash -c \
    'name=$(basename "$1" .py); timeout "$2" python3 "$1" "$3" >"$4/$name.log" 2>&1; echo "$?" >"$4/$name.code"' _ \
    '{}' "$seconds" "$program" "$logs"
  for script in "$@"; do
    name=$(basename "$script" .py)
    count_lines "$name" "$(cat "$logs/$name.code")"
  done
}

# run_tests PREFIX FOLDER SECONDS NAME...: the test programs of these folders of tests/ that this build has. Most of a
# program runs on one thread, so two run at a time.
run_tests() {
  local prefix=$1 folder=$2 seconds=$3 name there=()
  shift 3
  for name in "$@"; do
    [ ! -x "$folder/tests/$name/test_$name" ] || there+=("$name")
  done
  [ ${#there[@]} -gt 0 ] || return 0
  # shellcheck disable=SC2016
  printf '%s\n' "${there[@]}" | xargs -P "$(build_jobs)" -I '{}' bash -c \
    'timeout "$3" "$2/tests/$1/test_$1" >"$4-$1.log" 2>&1; echo "$?" >"$4-$1.code"' _ '{}' "$folder" "$seconds" \
    "$logs/$prefix"
  for name in "${there[@]}"; do count_program "$prefix-$name" "$(cat "$logs/$prefix-$name.code")"; done
}

# Folders of tests/ with a GoogleTest program.
test_folders() { grep -l '^ *millrace_test(' tests/*/CMakeLists.txt | sed 's|^tests/||; s|/CMakeLists.txt$||'; }

# The build targets of those of these folders that exist.
targets_of() {
  local name
  for name in "$@"; do
    if test_folders | grep -qx "$name"; then printf 'test_%s ' "$name"; fi
  done
}

# run_fuzzers SECONDS: every fuzz target of build/asan, two at a time.
run_fuzzers() {
  local program name log
  prepare asan "$root/build/asan" fuzzers || return
  mkdir -p build/found
  rm -f "$logs"/fuzz-*.code
  export -f run_fuzzer
  find build/asan/tests -type f -name 'fuzz_*' -executable | sort |
    xargs -P "$(build_jobs)" -I '{}' bash -c 'run_fuzzer "$@"' _ '{}' "$1" "$logs"
  for program in $(find build/asan/tests -type f -name 'fuzz_*' -executable | sort); do
    name=${program##*/fuzz_}
    log=$logs/fuzz-$name.log
    if [ "$(cat "$logs/fuzz-$name.code")" = 0 ]; then
      passed
      printf '   %-28s %s runs\n' "fuzz-$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
    else
      failed "fuzz_$name (see ${log#"$root"/}; the input is in build/found)"
      tail -n 25 "$log"
    fi
  done
}

# run_fuzzer PROGRAM SECONDS LOGS: from its seeds, with the words of corpus/NAME.dict if any; what it finds is kept
# under build/found. Runs in a shell of its own.
run_fuzzer() {
  local program=$1 seconds=$2 name=${1##*/fuzz_} seeds work words=()
  work=build/found/corpus/$name
  mkdir -p "$work"
  seeds=$(find tests -type d -path "*corpus/$name" | head -n 1)
  [ ! -e "$seeds.dict" ] || words=("-dict=$seeds.dict")
  # shellcheck disable=SC2086
  timeout $((seconds * 3 + 60)) "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 "${words[@]}" \
    -print_final_stats=1 -artifact_prefix="build/found/$name-" "$work" $seeds >"$3/fuzz-$name.log" 2>&1
  echo "$?" >"$3/fuzz-$name.code"
}

# The shape of the tree: include rules, file sizes, formatting, and that each of these rules can fail.
group_tree() {
  run_lines tree 120 python3 tests/arch/tree.py
  run_lines skip-rules 60 python3 tests/arch/skips_test.py
  run_lines tree-rules 120 python3 tests/arch/tree_test.py
}

group_release() {
  # shellcheck disable=SC2046
  prepare release "$root/build/release" "millrace $(targets_of $(test_folders))" -DMILLRACE_TESTS=ON || return
  # shellcheck disable=SC2046
  run_tests release build/release 600 $(test_folders)
}

# The CUDA backend: compiled where nvcc is, run where a GPU is.
group_cuda() {
  if ! command -v nvcc >/dev/null; then
    skipped "cuda: no nvcc here, nothing was compiled"
    return
  fi
  prepare cuda "$root/build/cuda" "millrace test_session" -DMILLRACE_TESTS=ON || return
  passed
  if ! nvidia-smi -L >/dev/null 2>&1; then
    skipped "cuda: compiled, but there is no GPU to run it on"
    return
  fi
  local program=build/cuda/bin/millrace
  # Operations by both families of kernels a Hopper has, whose hashes must agree; elsewhere both runs are the same.
  cuda_check ops "$program" verify ops --device cuda --json
  MILLRACE_CUDA_KERNELS=portable cuda_check ops-portable "$program" verify ops --device cuda --json
  cuda_check families python3 tests/backend/same_hashes.py "$logs"/cuda-ops.log "$logs"/cuda-ops-portable.log
  cuda_check golden "$program" verify golden tests/model/golden --backend cuda
  cuda_check cache "$program" verify cache --device cuda
  cuda_check crowd "$program" verify crowd --device cuda
  GTEST_FILTER='Ranks.OnAGpu*' run_program cuda-ranks 600 build/cuda/tests/session/test_session
}

# cuda_check NAME COMMAND...: a command that must succeed, its output kept.
cuda_check() {
  local name=cuda-$1
  shift
  if timeout 1200 "$@" >"$logs/$name.log" 2>"$logs/$name.err"; then
    passed
    printf '   %-28s fine\n' "$name"
  else
    failed "$name (see build/test-logs/$name.log and .err)"
    tail -n 5 "$logs/$name.log" "$logs/$name.err"
  fi
}

# The program as a person meets it, in a shell.
group_command_line() {
  prepare release "$root/build/release" millrace -DMILLRACE_TESTS=ON || return
  run_scripts 900 build/release/bin/millrace tests/apps/{shrink_any,command_line,shrink,experts,chat}.py \
    tests/apps/manners.py tests/hub/pull.py
}

# Every weight format on every instruction set this machine has: the same bits however a token is computed.
group_exact() {
  prepare release "$root/build/release" millrace -DMILLRACE_TESTS=ON || return
  run_lines exact 1500 python3 tests/apps/exact.py build/release/bin/millrace
}

# Tests that thin out their combinations in other groups, with all of them; limits that are passed, by every verb.
group_thorough() {
  prepare release "$root/build/release" "millrace $(targets_of backend engine)" -DMILLRACE_TESTS=ON || return
  run_lines ceilings 600 python3 tests/apps/ceilings.py build/release/bin/millrace
  MILLRACE_THOROUGH=1 GTEST_FILTER='Attend.*:Tiles.*:Simulation.*' run_tests thorough build/release 1800 backend engine
}

# Real clients from npm, at the versions of their lockfile, against a server of our own.
group_clients() {
  prepare release "$root/build/release" millrace -DMILLRACE_TESTS=ON || return
  if ! command -v npm >/dev/null && ! need_packages nodejs npm; then
    failed "clients: no Node"
    return
  fi
  npm_ready clients tests/clients || return
  run_lines clients 600 python3 tests/clients/run.py build/release/bin/millrace
}

# Agents from npm: programs of their own and libraries, each with a tool, against a server that says what a script has.
group_agents() {
  prepare release "$root/build/release" millrace -DMILLRACE_TESTS=ON || return
  if ! need_node; then
    skipped "agents: no Node 20.19 or newer"
    return
  fi
  npm_ready agents tests/clients/agents || return
  run_lines agents 1500 python3 tests/clients/agents/agents.py build/release/bin/millrace
}

# npm_ready NAME FOLDER: has what the folder's lockfile names installed. Without the registry there is nothing to test
# with, and the group NAME is skipped; a lockfile it contradicts is our mistake.
npm_ready() {
  local name=$1 folder=$2 log=$logs/npm-$1.log
  if cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed"; then return 0; fi
  if npm_ci "$folder" >"$log" 2>&1; then
    mkdir -p "$folder/node_modules"
    cp "$folder/package-lock.json" "$folder/node_modules/.installed"
    return 0
  fi
  tail -n 20 "$log"
  if grep -qE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|E50[0-9]' "$log"; then
    skipped "$name: the npm registry cannot be reached (see ${log#"$root"/})"
  else
    failed "$name: npm ci (see ${log#"$root"/})"
  fi
  return 1
}

# npm_ci FOLDER: what its lockfile names; the registry may need to be asked more than once.
npm_ci() {
  local try
  for try in 1 2 3 4; do
    if (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund --prefer-offline); then return 0; fi
    sleep $((try * 5))
  done
  return 1
}

# Clients that misbehave, beside streams that must not notice.
group_faults() {
  prepare release "$root/build/release" millrace -DMILLRACE_TESTS=ON || return
  run_lines faults 1800 python3 tests/server/faults.py build/release/bin/millrace
  if need_packages haproxy; then
    run_lines resume 600 python3 tests/server/resume.py build/release/bin/millrace
  else
    skipped "resume: no package haproxy"
  fi
  if need_packages redis-server; then
    run_lines shared-pages 600 python3 tests/server/shared_pages.py build/release/bin/millrace
  else
    skipped "shared-pages: no package redis-server"
  fi
  if need_packages python3-yaml && /usr/bin/python3 -c 'import yaml' 2>/dev/null; then
    run_lines deploy 600 /usr/bin/python3 tests/server/deploy.py build/release/bin/millrace
  else
    skipped "deploy: no package python3-yaml"
  fi
  if need_packages python3-zmq && /usr/bin/python3 -c 'import zmq' 2>/dev/null; then
    run_lines kv-events 600 /usr/bin/python3 tests/server/kv_events.py build/release/bin/millrace
  else
    skipped "kv-events: no package python3-zmq"
  fi
}

# Ranks as processes of an MPI job, in a build that has MPI.
group_mpi() {
  if ! need_packages libopenmpi-dev openmpi-bin; then
    skipped "mpi: no packages libopenmpi-dev and openmpi-bin"
    return
  fi
  prepare release "$root/build/mpi" millrace -DMILLRACE_TESTS=OFF -DMILLRACE_MPI=ON || return
  run_lines mpi 1800 python3 tests/server/mpi.py build/mpi/bin/millrace
  run_lines mpi-kills 3600 python3 tests/server/mpi.py build/mpi/bin/millrace --kills 100
}

# The same with thousands of them, under AddressSanitizer too, the metrics as Prometheus' own tool reads them, and two
# servers behind HAProxy.
group_faults_long() {
  prepare release "$root/build/release" "millrace millrace_planted" -DMILLRACE_TESTS=ON || return
  need_packages prometheus || skipped "promtool: no package prometheus"
  need_packages slowhttptest || say "test: no package slowhttptest"
  run_lines faults-long 3600 python3 tests/server/faults.py build/release/bin/millrace --full
  run_lines poison-long 1800 python3 tests/server/poison.py build/release/bin/millrace_planted --seeds 100
  if need_packages haproxy; then
    run_lines replicas 600 python3 tests/server/replicas.py build/release/bin/millrace
    run_lines resume-long 1800 python3 tests/server/resume.py build/release/bin/millrace --streams 200
  else
    skipped "replicas: no package haproxy"
  fi
  prepare asan "$root/build/asan" millrace || return
  # What was freed is kept for a while so that its use is noticed; all of it would look as if memory grew.
  ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=4 \
    run_lines faults-sanitized 3600 python3 tests/server/faults.py build/asan/bin/millrace
}

sanitizer_options() {
  export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
}

group_sanitized() {
  prepare asan "$root/build/asan" "$(targets_of "${sanitized_programs[@]}")" || return
  sanitizer_options
  GTEST_FILTER=-$sanitized_later run_tests sanitized build/asan 1800 "${sanitized_programs[@]}"
}

group_sanitized_rest() {
  prepare asan "$root/build/asan" "$(targets_of "${sanitized_programs[@]}" "${sanitized_rest[@]}")" || return
  sanitizer_options
  GTEST_FILTER=$sanitized_later run_tests sanitized-later build/asan 1800 server model engine
  GTEST_FILTER=-$sanitized_never run_tests sanitized build/asan 1800 "${sanitized_rest[@]}"
}

group_fuzz() { run_fuzzers "$fuzz_seconds"; }
group_fuzz_long() { run_fuzzers "$fuzz_long_seconds"; }

group_threads() {
  prepare tsan "$root/build/tsan" "millrace $(targets_of "${threaded_programs[@]}")" || return
  export TSAN_OPTIONS="halt_on_error=1 suppressions=$root/tests/tsan.supp"
  GTEST_FILTER=-$single_threaded run_tests threads build/tsan 1800 "${threaded_programs[@]}"
  run_lines threads-served 1800 python3 tests/server/watched.py build/tsan/bin/millrace
}

# The second compiler, on every file by itself.
group_clang() {
  local targets
  # shellcheck disable=SC2046
  targets="millrace $(targets_of $(test_folders))"
  prepare release "$root/build/clang" "$targets" -DCMAKE_CXX_COMPILER=clang++ -DMILLRACE_TESTS=ON -DMILLRACE_BATCH=1 ||
    return
  # shellcheck disable=SC2046
  run_tests clang build/clang 600 $(test_folders)
}

# Without tokenizers and templates everything goes by token ids, the server too.
group_no_text() {
  # shellcheck disable=SC2046
  prepare release "$root/build/no_text" "millrace $(targets_of session server engine)" \
    -DMILLRACE_TEXT=OFF -DMILLRACE_TESTS=ON || return
  run_tests no-text build/no_text 600 session server engine
}

# Every header compiles on its own, and every program of lab/; what is the other processor's with a compiler for it.
group_headers() {
  local databases=(build/headers/compile_commands.json) # nothing is built there
  configure release "$root/build/headers" -DMILLRACE_TESTS=ON -DMILLRACE_BATCH=1 -DMILLRACE_PCH=OFF || return
  if cross_ready && configure_cross; then databases+=(build/emulated/compile_commands.json); fi
  run_lines headers 1200 python3 tests/arch/headers.py "${databases[@]}"
}

# The other family of processors, as an emulator calls it, and Debian's compiler for it.
other_processor() { case $(uname -m) in aarch64) echo x86_64 ;; x86_64) echo aarch64 ;; esac; }
cross_ready() {
  case $(other_processor) in
    x86_64) need_packages g++-x86-64-linux-gnu ;;
    aarch64) need_packages g++-aarch64-linux-gnu ;;
    *) return 1 ;;
  esac
}
cross_flags=(-DCMAKE_TOOLCHAIN_FILE=cmake/cross.cmake -DMILLRACE_TEXT=OFF -DMILLRACE_TESTS=ON)
configure_cross() { configure release "$root/build/emulated" "${cross_flags[@]}"; }

# The kernels of processors other than this one: our own binaries on older and newer members of this family, and
# binaries of the other family, all under qemu-user. AVX-512 and AMX are not emulated by it and need real hardware.
emulated_programs=(backend engine base tensor cache)
# Without what takes an emulator long and has no loop of its own for a processor: of the engine, only draws have.
emulated_later='Attend.ManyHeadsOfOneLatent:Simulation.SeedsHold:DraftControl.*:*EngineUnderPressure.*:*MadeUpHead.*'
emulated_later+=':DraftRule.*:*Tree*.*:*HeadPages.*:DraftPages.*'
group_emulated() {
  local here other cpu
  here=$(uname -m) other=$(other_processor)
  if ! cross_ready || ! need_packages qemu-user; then
    skipped "emulation: no qemu-user, or no compiler for another processor than $here"
    return
  fi
  # shellcheck disable=SC2034
  local aarch64_cpus="cortex-a72 neoverse-n1 max" x86_64_cpus="Nehalem max" cpus
  prepare release "$root/build/release" "$(targets_of "${emulated_programs[@]}")" -DMILLRACE_TESTS=ON || return
  cpus=${here}_cpus
  for cpu in ${!cpus}; do emulate "$cpu" build/release "qemu-$here" -cpu "$cpu"; done
  prepare release "$root/build/emulated" "$(targets_of "${emulated_programs[@]}")" "${cross_flags[@]}" || return
  cpus=${other}_cpus
  for cpu in ${!cpus}; do
    emulate "$other-$cpu" build/emulated "qemu-$other" -cpu "$cpu" -L "/usr/$other-linux-gnu"
  done
}

# emulate LABEL FOLDER EMULATOR...: two at a time, the longest programs in pieces.
emulate() {
  local label=$1 folder=$2 name all piece pieces=()
  shift 2
  for name in "${emulated_programs[@]}"; do
    [ -x "$folder/tests/$name/test_$name" ] || continue
    case $name in backend) all=6 ;; engine) all=2 ;; *) all=1 ;; esac
    for ((piece = 0; piece < all; ++piece)); do pieces+=("$name $piece $all"); done
  done
  # shellcheck disable=SC2016
  printf '%s\n' "${pieces[@]}" | GTEST_FILTER=-$emulated_later xargs -P "$(build_jobs)" -I '{}' bash -c \
    'log=$1 folder=$3; read -r name piece all <<<"$2"; shift 3
     export GTEST_TOTAL_SHARDS=$all GTEST_SHARD_INDEX=$piece
     timeout 3600 "$@" "$folder/tests/$name/test_$name" >"$log-$name-$piece.log" 2>&1
     echo "$?" >"$log-$name-$piece.code"' _ "$logs/emulated-$label" '{}' "$folder" "$@"
  while read -r name piece all; do
    name=emulated-$label-$name-$piece
    count_program "$name" "$(cat "$logs/$name.code")"
  done < <(printf '%s\n' "${pieces[@]}")
}

# The page's bundle is what its source gives, byte for byte.
group_page() {
  if ! need_node; then
    skipped "page: no Node 20.19 or newer"
    return
  fi
  npm_ready page web || return
  run_lines page 300 bash tests/web/bundle.sh
}

# The page in a real browser, against the real server.
group_browser() {
  if ! need_packages chromium || ! need_node; then
    skipped "browser: no Chromium, or no Node 20.19 or newer"
    return
  fi
  npm_ready browser tests/web || return
  prepare release "$root/build/release" millrace -DMILLRACE_TESTS=ON || return
  run_lines browser 900 node tests/web/browser.mjs build/release/bin/millrace
}
