# Imported targets for an unpacked torch wheel (or a libtorch archive), without find_package(Torch): that one runs
# FindCUDA and enable_language(CUDA) for a CUDA wheel and is fatal where no toolkit is installed.
#
#   lockstep::torch        libtorch_cpu and libc10, headers, the defines the libraries were built with
#   lockstep::torch_cuda   the above, libtorch_cuda, libc10_cuda and NCCL's headers (only when LOCKSTEP_NCCL is on)
#
# In:  LOCKSTEP_TORCH_DIR (cache or environment): directory with include/ and lib/, or the site-packages above it;
#      default is what tools/setup installed.
# Out: LOCKSTEP_TORCH_ROOT, LOCKSTEP_TORCH_VERSION

set(LOCKSTEP_TORCH_DIR "$ENV{LOCKSTEP_TORCH_DIR}" CACHE PATH "torch package directory (holds include/ and lib/)")
set(_lt_dir "${LOCKSTEP_TORCH_DIR}")
if(NOT _lt_dir)
  set(_lt_dir "${CMAKE_SOURCE_DIR}/.deps/torch-2.13.0")
  if(NOT EXISTS "${_lt_dir}")
    message(FATAL_ERROR "Lockstep: no torch found. Run tools/setup, or set LOCKSTEP_TORCH_DIR to the torch package "
      "directory of your own Python environment, or build without torch (cmake --preset core).")
  endif()
endif()
unset(LOCKSTEP_TORCH_ROOT)
foreach(_lt_sub "/torch" "")
  if(EXISTS "${_lt_dir}${_lt_sub}/lib/libtorch_cpu.so")
    get_filename_component(LOCKSTEP_TORCH_ROOT "${_lt_dir}${_lt_sub}" REALPATH)
    break()
  endif()
endforeach()
if(NOT LOCKSTEP_TORCH_ROOT)
  message(FATAL_ERROR "Lockstep: '${_lt_dir}' holds no lib/libtorch_cpu.so; LOCKSTEP_TORCH_DIR must be a torch package directory.")
endif()

# The version comes from the headers we compile against, not from Python metadata.
file(STRINGS "${LOCKSTEP_TORCH_ROOT}/include/torch/headeronly/version.h" _lt_lines
  REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
string(REGEX REPLACE "[^0-9;]" "" _lt_version "${_lt_lines}")
string(REPLACE ";" "." LOCKSTEP_TORCH_VERSION "${_lt_version}")
if(LOCKSTEP_TORCH_VERSION VERSION_LESS 2.13 OR LOCKSTEP_TORCH_VERSION VERSION_GREATER_EQUAL 2.16)
  message(FATAL_ERROR "Lockstep: torch '${LOCKSTEP_TORCH_VERSION}' in ${LOCKSTEP_TORCH_ROOT} is not supported; "
    "Lockstep needs torch 2.13, 2.14 or 2.15 (tools/setup installs 2.13.0).")
endif()

# A CUDA wheel's libtorch_cpu needs libcudart and libcupti even for CPU work; they sit in sibling nvidia packages.
# The wheel's own RPATH finds them at run time; the linker needs -rpath-link.
file(GLOB _lt_nvidia "${LOCKSTEP_TORCH_ROOT}/../nvidia/*/lib")
set(_lt_rpath_link "")
foreach(_lt_lib "${LOCKSTEP_TORCH_ROOT}/lib" ${_lt_nvidia})
  get_filename_component(_lt_lib "${_lt_lib}" REALPATH)
  list(APPEND _lt_rpath_link "-Wl,-rpath-link,${_lt_lib}")
endforeach()
if(EXISTS "${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so")
  foreach(_lt_need cudart cupti)
    file(GLOB _lt_have "${LOCKSTEP_TORCH_ROOT}/../nvidia/*/lib/lib${_lt_need}.so*")
    if(NOT _lt_have)
      message(FATAL_ERROR "Lockstep: this is a CUDA build of torch and lib${_lt_need} is not beside it, so nothing linked "
        "to it would start, GPU or not. Install nvidia-cuda-runtime and nvidia-cuda-cupti next to it, as tools/setup does.")
    endif()
  endforeach()
endif()

# The OpenMP that torch itself runs on, so that at::parallel_for shares its threads.
file(GLOB _lt_openmp "${LOCKSTEP_TORCH_ROOT}/lib/libgomp*.so*")
if(NOT _lt_openmp)
  set(_lt_openmp gomp)
endif()

add_library(lockstep::c10 SHARED IMPORTED GLOBAL)
set_target_properties(lockstep::c10 PROPERTIES IMPORTED_LOCATION "${LOCKSTEP_TORCH_ROOT}/lib/libc10.so")
add_library(lockstep::torch SHARED IMPORTED GLOBAL)
set_target_properties(lockstep::torch PROPERTIES
  IMPORTED_LOCATION "${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cpu.so"
  INTERFACE_INCLUDE_DIRECTORIES "${LOCKSTEP_TORCH_ROOT}/include;${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include"
  # Must match how the wheel was built: class layouts in c10d headers depend on them.
  INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC;USE_TENSORPIPE"
  INTERFACE_COMPILE_FEATURES cxx_std_20
  INTERFACE_LINK_LIBRARIES "lockstep::c10;${_lt_openmp}"
  INTERFACE_LINK_OPTIONS "${_lt_rpath_link}")

if(LOCKSTEP_NCCL)
  if(NOT EXISTS "${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so")
    message(FATAL_ERROR "Lockstep: LOCKSTEP_NCCL is on, but torch in ${LOCKSTEP_TORCH_ROOT} is a CPU build.")
  endif()
  find_path(LOCKSTEP_CUDA_INCLUDE cuda_runtime.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda ${_lt_nvidia}/.. PATH_SUFFIXES include)
  find_path(LOCKSTEP_NCCL_INCLUDE nccl.h HINTS "${LOCKSTEP_TORCH_ROOT}/../nvidia/nccl/include" "${LOCKSTEP_CUDA_INCLUDE}")
  if(NOT LOCKSTEP_CUDA_INCLUDE OR NOT LOCKSTEP_NCCL_INCLUDE)
    message(FATAL_ERROR "Lockstep: LOCKSTEP_NCCL is on, but cuda_runtime.h or nccl.h was not found; "
      "set LOCKSTEP_CUDA_INCLUDE and LOCKSTEP_NCCL_INCLUDE to the directories that hold them.")
  endif()
  include("${CMAKE_CURRENT_LIST_DIR}/LockstepNccl.cmake")
  file(GLOB _lt_metadata "${LOCKSTEP_TORCH_ROOT}/../torch-*.dist-info/METADATA")
  lockstep_check_nccl("${LOCKSTEP_NCCL_INCLUDE}/nccl.h" "${_lt_metadata}")
  file(GLOB _lt_cudart "${LOCKSTEP_TORCH_ROOT}/../nvidia/*/lib/libcudart.so.*")  # of kernels of our own
  add_library(lockstep::torch_cuda INTERFACE IMPORTED GLOBAL)
  set_target_properties(lockstep::torch_cuda PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LOCKSTEP_NCCL_INCLUDE};${LOCKSTEP_CUDA_INCLUDE}"  # in this order: a toolkit may have an nccl.h
    INTERFACE_COMPILE_DEFINITIONS "USE_C10D_NCCL;FMT_HEADER_ONLY=1"  # the wheel ships fmt's headers, not its library
    # no-as-needed: kernels register from static constructors, so nothing refers to the libraries by name.
    # allow-shlib-undefined: cublas, cudnn and nccl may be absent on the machine that builds.
    INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined"
    INTERFACE_LINK_LIBRARIES "lockstep::torch;-Wl,--push-state,--no-as-needed;${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so;${LOCKSTEP_TORCH_ROOT}/lib/libc10_cuda.so;-Wl,--pop-state;${_lt_cudart}")
endif()
set(LockstepTorch_FOUND TRUE)
message(STATUS "Lockstep: torch ${LOCKSTEP_TORCH_VERSION} in ${LOCKSTEP_TORCH_ROOT}")
