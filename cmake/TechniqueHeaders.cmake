# cmake -DFROM=csrc -DTO=FOLDER -DHASH=FILE -P TechniqueHeaders.cmake
# Copies compress/library.h, and the headers that it includes, into a folder, with which others compile libraries of
# techniques. Writes one more header, as HASH and into the folder: it defines a hash of these headers, so that a library
# and a core that were compiled with different ones do not work together. Files that are right stay as they are.
cmake_minimum_required(VERSION 3.22)
get_filename_component(generated ${HASH} NAME)
set(found compress/library.h)
set(left ${found})
while(left)
  list(POP_FRONT left header)
  file(STRINGS ${FROM}/${header} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    if(NOT included IN_LIST found)
      list(APPEND found ${included})
      list(APPEND left ${included})
    endif()
  endforeach()
endwhile()
list(SORT found)

file(GLOB_RECURSE there RELATIVE ${TO} ${TO}/*)
foreach(file IN LISTS there)
  if(NOT file IN_LIST found AND NOT file STREQUAL generated)
    file(REMOVE ${TO}/${file})
  endif()
endforeach()
set(hashes)
foreach(header IN LISTS found)
  get_filename_component(folder ${TO}/${header} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(COPY_FILE ${FROM}/${header} ${TO}/${header} ONLY_IF_DIFFERENT)
  file(SHA256 ${TO}/${header} hash)
  string(APPEND hashes "${header} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
foreach(file IN ITEMS ${HASH} ${TO}/${generated})
  file(CONFIGURE OUTPUT ${file} CONTENT "// Written by cmake/TechniqueHeaders.cmake.
#pragma once

// A hash of compress/library.h and of the headers that it includes.
#define ROUNDELAY_TECHNIQUE_HEADERS \"${hash}\"
")
endforeach()
