# NCCL's header must be that of the very NCCL which torch was built with: ncclConfig_t grows from release to release,
# and ProcessGroupNCCL's inline functions allocate it by the header's size, which the library then writes beyond.
#
# lockstep_check_nccl(header metadata): `header` is nccl.h, `metadata` the METADATA of torch's wheel, which pins NCCL; of a
# torch without one, LOCKSTEP_NCCL_VERSION says which it is.
set(LOCKSTEP_NCCL_VERSION "" CACHE STRING "NCCL that torch was built with, where its package does not say")

function(lockstep_check_nccl header metadata)
  set(wanted "${LOCKSTEP_NCCL_VERSION}")
  if(EXISTS "${metadata}")
    file(STRINGS "${metadata}" pins REGEX "^Requires-Dist: nvidia-nccl-cu[0-9]+ *==")
    string(REGEX REPLACE "^.*== *([0-9.]+).*$" "\\1" wanted "${pins}")
  endif()
  if(NOT wanted)
    message(FATAL_ERROR "Lockstep: LOCKSTEP_NCCL is on, but nothing says which NCCL this torch was built with; set "
      "LOCKSTEP_NCCL_VERSION, for example to 2.29.7 (torch.cuda.nccl.version() in Python).")
  endif()
  file(STRINGS "${header}" lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
  string(REPLACE ";" "." found "${numbers}")
  if(NOT found STREQUAL wanted)
    message(FATAL_ERROR "Lockstep: ${header} is of NCCL ${found}, and this torch was built with NCCL ${wanted}: programs would "
      "overwrite memory. tools/setup --cuda installs the right one, or set LOCKSTEP_NCCL_INCLUDE to where it is.")
  endif()
endfunction()
