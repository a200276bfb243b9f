# The installed package: find_package(Lockstep COMPONENTS core rt).
#   Lockstep::core   every folder below the LibTorch fence
#   Lockstep::rt     core and every folder above it; present when built with torch
# The tree may be moved after installation; torch stays where it is.
include(CMakePackageConfigHelpers)

get_property(_ls_areas GLOBAL PROPERTY LOCKSTEP_AREAS)
get_property(_ls_above GLOBAL PROPERTY LOCKSTEP_AREAS_ABOVE_FENCE)
set(_ls_below ${_ls_areas})
if(_ls_above)
  list(REMOVE_ITEM _ls_below ${_ls_above})
endif()
set(_ls_package "${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep")

# One component: an interface target over its folders, exported together with them.
function(lockstep_component name)
  set(members "")
  string(REPLACE "/" "_" areas "${ARGN}")
  foreach(area IN LISTS areas)
    list(APPEND members lockstep_${area})
  endforeach()
  add_library(lockstep_component_${name} INTERFACE)
  add_library(Lockstep::${name} ALIAS lockstep_component_${name})
  set_target_properties(lockstep_component_${name} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(lockstep_component_${name} INTERFACE ${members} Threads::Threads)
  install(TARGETS lockstep_component_${name} ${members} EXPORT Lockstep-${name}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT Lockstep-${name} NAMESPACE Lockstep:: DESTINATION "${_ls_package}")
endfunction()

lockstep_component(core ${_ls_below})
if(_ls_above)
  lockstep_component(rt ${_ls_above})
  target_link_libraries(lockstep_component_rt INTERFACE lockstep_component_core)
  install(FILES "${CMAKE_SOURCE_DIR}/cmake/FindLockstepTorch.cmake" "${CMAKE_SOURCE_DIR}/cmake/LockstepNccl.cmake" DESTINATION "${_ls_package}")
  # Not relative: the module has to find the torch it was built with, wherever the program goes.
  set_target_properties(lockstep_torch PROPERTIES INSTALL_RPATH "${LOCKSTEP_TORCH_ROOT}/lib")
  install(TARGETS lockstep_torch LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()

install(TARGETS lockstep RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/LockstepConfig.cmake.in"
  "${CMAKE_BINARY_DIR}/LockstepConfig.cmake" INSTALL_DESTINATION "${_ls_package}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/LockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/LockstepConfig.cmake" "${CMAKE_BINARY_DIR}/LockstepConfigVersion.cmake"
  DESTINATION "${_ls_package}")
