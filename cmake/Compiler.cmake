# Before project(): a missing compiler is one line with its cure, and ccache is taken where it is.
if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  find_program(roundelay_cxx NAMES c++ g++ clang++)
  if(NOT roundelay_cxx)
    message(FATAL_ERROR "No C++ compiler found; install one: apt-get install g++")
  endif()
endif()

find_program(roundelay_ccache ccache)
if(roundelay_ccache AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # As its manual asks for where headers are precompiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${roundelay_ccache} CACHE STRING "ccache")
endif()
