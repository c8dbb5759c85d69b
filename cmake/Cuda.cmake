# Finds nvcc: the one on PATH, else those that `make cuda` put under build/cuda. Sets ROUNDELAY_HAS_CUDA and, with it,
# the target roundelay_cuda: the headers, for C++.
set(ROUNDELAY_HAS_CUDA OFF)
if(ROUNDELAY_WITH_CUDA STREQUAL OFF OR ROUNDELAY_SANITIZE)
  return()
endif()

function(roundelay_without_cuda why)
  if(ROUNDELAY_WITH_CUDA STREQUAL ON)
    message(FATAL_ERROR "${why}; install CUDA 13 (nvcc on PATH), or call `make cuda`, which fetches its compiler")
  endif()
  message(STATUS "Roundelay: ${why}: without the GPU module")
endfunction()

string(REPLACE ":" ";" path_folders "$ENV{PATH}")
find_program(ROUNDELAY_NVCC NAMES nvcc NO_DEFAULT_PATH
             PATHS ${path_folders} ${PROJECT_SOURCE_DIR}/build/cuda/nvidia/cu13/bin /usr/local/cuda/bin)
if(NOT ROUNDELAY_NVCC)
  roundelay_without_cuda("no nvcc")
  return()
endif()
set(ENV{CUDACXX} ${ROUNDELAY_NVCC})  # as a variable it would not be tried below
set(CMAKE_CUDA_ARCHITECTURES ${ROUNDELAY_CUDA_ARCHITECTURES})
if(roundelay_ccache AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${roundelay_ccache} CACHE FILEPATH "ccache")
endif()

# Tried in a project of its own first: a compiler that does not work is no error there.
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # what did not work before
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  roundelay_without_cuda("${ROUNDELAY_NVCC} does not compile")
  return()
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  roundelay_without_cuda("nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.8")
  return()
endif()
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  roundelay_without_cuda("CMake ${CMAKE_VERSION} knows no C++20 for this nvcc")
  return()
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)

add_library(roundelay_cuda INTERFACE)
target_include_directories(roundelay_cuda SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
set(ROUNDELAY_HAS_CUDA ON)
message(STATUS "Roundelay: CUDA ${CMAKE_CUDA_COMPILER_VERSION} of ${ROUNDELAY_NVCC}")
