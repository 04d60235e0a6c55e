# Run at build time (cmake -P): fills build_info.cpp.in, touching the result only if something changed, so that a new
# commit rebuilds one small file and nothing else.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=10 HEAD
  OUTPUT_VARIABLE MILLRACE_COMMIT ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(MILLRACE_COMMIT)
  execute_process(COMMAND git -C ${SOURCE_DIR} diff --quiet HEAD -- src cmake CMakeLists.txt
    RESULT_VARIABLE changed ERROR_QUIET)
  if(changed)
    string(APPEND MILLRACE_COMMIT "+")
  endif()
else()
  set(MILLRACE_COMMIT "unknown")
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
