# Installs a build, moves the tree, and builds and runs the consumer against it.
#   cmake -DBUILD=<finished build> -DSOURCE=<this folder> -DSCRATCH=<folder to use> -DTORCH=<bool> -P run.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}\n${text}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/first")
file(RENAME "${SCRATCH}/first" "${SCRATCH}/moved")
run("${SCRATCH}/moved/bin/lockstep" --version)
if(TORCH)
  run("${SCRATCH}/moved/bin/lockstep" doctor)  # loads LibTorch
endif()

set(components core)
if(TORCH)
  list(APPEND components rt)
endif()
foreach(component IN LISTS components)
  set(build "${SCRATCH}/build-${component}")
  run("${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}" -B "${build}" "-DCONSUMER_COMPONENT=${component}"
    "-DCMAKE_PREFIX_PATH=${SCRATCH}/moved" -DCMAKE_BUILD_TYPE=Release)
  run("${CMAKE_COMMAND}" --build "${build}")
  run("${build}/consumer")
  message(STATUS "${component}: ${text}")
endforeach()

if(NOT TORCH)
  execute_process(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}" -B "${SCRATCH}/build-rt" -DCONSUMER_COMPONENT=rt
    "-DCMAKE_PREFIX_PATH=${SCRATCH}/moved" RESULT_VARIABLE code ERROR_VARIABLE text OUTPUT_QUIET)
  if(code EQUAL 0 OR NOT text MATCHES "built without torch")
    message(FATAL_ERROR "asking a torch-free installation for rt must say why it is not there:\n${text}")
  endif()
endif()
