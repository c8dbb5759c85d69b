# Finds Python and torch. Sets ROUNDELAY_HAS_TORCH and then the targets Python3::Module and roundelay_torch,
# ROUNDELAY_TORCH_SET, and ROUNDELAY_TORCH_HAS_CUDA if that PyTorch is one for GPUs.
set(ROUNDELAY_HAS_TORCH OFF)
if(NOT Python3_EXECUTABLE AND NOT SKBUILD AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(Python3_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
if(SKBUILD AND PYTHON_EXECUTABLE AND NOT Python3_EXECUTABLE)
  set(Python3_EXECUTABLE ${PYTHON_EXECUTABLE})
endif()
set(Python3_FIND_VIRTUALENV FIRST)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(ROUNDELAY_WITH_TORCH STREQUAL OFF)
  return()
endif()
if(NOT Python3_FOUND)
  if(ROUNDELAY_WITH_TORCH STREQUAL ON)
    message(FATAL_ERROR "No Python 3 found; install it: apt-get install python3 python3-dev python3-venv")
  endif()
  return()
endif()

execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
  OUTPUT_VARIABLE torch_folder OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_folder)
  if(ROUNDELAY_WITH_TORCH STREQUAL ON)
    message(FATAL_ERROR "PyTorch is not installed for ${Python3_EXECUTABLE}; install it: ${Python3_EXECUTABLE} -m pip install torch")
  endif()
  message(STATUS "Roundelay: no torch for ${Python3_EXECUTABLE}: without the Python module")
  return()
endif()
find_package(Python3 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python3_Development.Module_FOUND)
  message(FATAL_ERROR "Python.h of ${Python3_EXECUTABLE} is missing; install it: apt-get install python3-dev")
endif()

# Does not use torch's CMake package, which requires a whole CUDA toolkit if torch was built with CUDA. The modules need no
# link to torch's libraries, because Python has loaded them before.
add_library(roundelay_torch INTERFACE)
set(torch_libraries torch_python torch_cpu c10)
list(TRANSFORM torch_libraries REPLACE "(.+)" "${torch_folder}/lib/lib\\1.so")
target_link_libraries(roundelay_torch INTERFACE ${torch_libraries} Python3::Module)
target_include_directories(roundelay_torch SYSTEM INTERFACE ${torch_folder}/include
                           ${torch_folder}/include/torch/csrc/api/include)
target_compile_definitions(roundelay_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
set(ROUNDELAY_HAS_TORCH ON)
file(STRINGS ${torch_folder}/version.py ROUNDELAY_TORCH_HAS_CUDA REGEX "^cuda.*= *'")
file(STRINGS ${torch_folder}/version.py torch_version REGEX "^__version__")
string(REGEX REPLACE ".*'(.*)'.*" "\\1" torch_version "${torch_version}")
# The modules' folder (python/roundelay/_internal/torch_modules.py): a release's minor, or a nightly's whole version.
string(REGEX REPLACE "[+].*" "" ROUNDELAY_TORCH_SET "${torch_version}")
string(REGEX REPLACE "^([0-9]+[.][0-9]+)[.][0-9]+$" "\\1" ROUNDELAY_TORCH_SET "${ROUNDELAY_TORCH_SET}")
message(STATUS "Roundelay: torch ${torch_version} in ${torch_folder}")
