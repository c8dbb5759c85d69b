# Runs before project(): a missing compiler gives one line with the cure, and ccache is used if it is installed.
if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  find_program(roundelay_cxx NAMES c++ g++ clang++)
  if(NOT roundelay_cxx)
    message(FATAL_ERROR "No C++ compiler found; install one: apt-get install g++")
  endif()
endif()

find_program(roundelay_ccache ccache)
if(roundelay_ccache AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness that ccache's manual requires for precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${roundelay_ccache} CACHE STRING "ccache")
endif()
