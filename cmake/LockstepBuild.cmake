# Flags and job limits shared by every target.

# -O3 buys nothing measurable outside the loops over elements, which ask for it below, and costs a fifth of the build.
# Sanitizer builds (RelWithDebInfo) need line numbers, not variables.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
set_source_files_properties("${CMAKE_SOURCE_DIR}/lockstep/comm/tree_sum.cc" PROPERTIES COMPILE_OPTIONS "-O3")
# What uses base/vector_clones.h. Without the second and third a compiler leaves choices and roots out of vectors;
# without the last at::parallel_for, a template, is one thread.
foreach(_ls_file base/random nn/attention_grad nn/column_sums nn/gelu nn/row_entropy nn/scored_attention
    nn/softcap optim/adamw optim/squares)
  set_source_files_properties("${CMAKE_SOURCE_DIR}/lockstep/${_ls_file}.cc" PROPERTIES COMPILE_OPTIONS "-O3;-fno-trapping-math;-fno-math-errno;-ffp-contract=off;-fopenmp")
endforeach()

# The file that a broken invariant names is the source tree's own, wherever that tree stands; and so two checkouts
# compile the same bytes.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")

# ccache makes a second checkout or build folder cheap, and `dev` takes from it what `core` compiled; it is
# used when present and never required.
find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the first, precompiled headers (of tests) are never found in the cache; the others leave out where
  # the folders are.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros
    "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${LOCKSTEP_CCACHE}")
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

# A torch translation unit needs up to 1.3 GB, so those compile in a pool sized by memory, not by cores.
cmake_host_system_information(RESULT _ls_memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT _ls_cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR _ls_heavy "${_ls_memory_mb} / 1500")
if(_ls_heavy LESS 1)
  set(_ls_heavy 1)
elseif(_ls_heavy GREATER _ls_cores)
  set(_ls_heavy ${_ls_cores})
endif()
set_property(GLOBAL PROPERTY JOB_POOLS "heavy=${_ls_heavy}")

add_library(lockstep_flags INTERFACE)
# g++ 12 warns of an overlap in `"text" + std::string` that is not there (-Wrestrict); clang of what its own
# standard library's headers use.
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
target_include_directories(lockstep_flags INTERFACE "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>")
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
find_package(Threads REQUIRED)
target_link_libraries(lockstep_flags INTERFACE Threads::Threads)

if(LOCKSTEP_TORCH)
  find_package(LockstepTorch REQUIRED)
endif()
