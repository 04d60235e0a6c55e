# A build from nothing spends most of its time reading headers and compiling the same templates again. So the sources of
# a folder are compiled several at a time: a batch is a file that includes them one after the other. Who works on one
# file sets MILLRACE_BATCH=1 (the debug preset does), and each is compiled by itself.
#
# Files of a batch share one scope for names in unnamed namespaces. A file with a name that a neighbour has too is ALONE
# in its folder's CMakeLists.txt; so is one with compile options of its own.

# in_batches(RESULT TARGET ROOT SOURCES...): the batches of these sources, in the order of their names, which are taken
# from the include folder ROOT on.
function(in_batches result target root)
  list(SORT ARGN)
  list(LENGTH ARGN count)
  if(MILLRACE_BATCH LESS 2 OR count LESS 2)
    set(${result} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  # As many as it takes, of about the same size.
  math(EXPR batches "(${count} + ${MILLRACE_BATCH} - 1) / ${MILLRACE_BATCH}")
  set(made)
  foreach(number RANGE 1 ${batches})
    math(EXPR begin "(${number} - 1) * ${count} / ${batches}")
    math(EXPR length "${number} * ${count} / ${batches} - ${begin}")
    list(SUBLIST ARGN ${begin} ${length} files)
    set(text "")
    foreach(file ${files})
      file(RELATIVE_PATH name ${root} ${file})
      string(APPEND text "#include \"${name}\"\n")
    endforeach()
    set(batch ${CMAKE_CURRENT_BINARY_DIR}/${target}_${number}.cpp)
    file(CONFIGURE OUTPUT ${batch} CONTENT "${text}" @ONLY) # left as it is if nothing changed
    list(APPEND made ${batch})
  endforeach()
  set(${result} ${made} PARENT_SCOPE)
endfunction()

# split_alone(TOGETHER APART SOURCES...): those that may share a batch, and those that are ARG_ALONE of the caller, or
# lie in a folder that is.
function(split_alone together apart)
  foreach(file ${ARGN})
    file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${file})
    set(list together)
    foreach(entry ${ARG_ALONE})
      string(FIND "${name}/" "${entry}/" place)
      if(place EQUAL 0)
        set(list apart)
      endif()
    endforeach()
    list(APPEND in_${list} ${file})
  endforeach()
  set(${together} ${in_together} PARENT_SCOPE)
  set(${apart} ${in_apart} PARENT_SCOPE)
endfunction()
