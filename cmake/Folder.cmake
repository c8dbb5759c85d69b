# Compiles the standard headers that most files include once for all folders, and not for each file again.
# The list has those that take long and that at least 15 files include.
if(ROUNDELAY_PRECOMPILE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/often.cc CONTENT "// Nothing: its target has the precompiled headers.\n")
  add_library(often OBJECT ${PROJECT_BINARY_DIR}/often.cc)
  target_link_libraries(often PRIVATE roundelay_flags)
  target_precompile_headers(often PRIVATE <algorithm> <atomic> <chrono> <deque> <functional> <map> <memory> <optional>
                            <span> <string> <string_view> <thread> <utility> <vector>)
endif()

# csrc/includes.txt, who may include whom: a row is a target here.
set(rows ${CMAKE_SOURCE_DIR}/csrc/includes.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${rows})
file(STRINGS ${rows} rows REGEX "^[a-z]")
set(ROUNDELAY_FOLDERS)
foreach(row IN LISTS rows)
  string(REGEX MATCH "^([^:]+): ?(.*)$" row ${row})
  set(folder ${CMAKE_MATCH_1})
  list(APPEND ROUNDELAY_FOLDERS ${folder})
  string(REPLACE " " ";" links "${CMAKE_MATCH_2}")
  list(FILTER links EXCLUDE REGEX "\\.h$")
  set(ROUNDELAY_LINKS_${folder} ${links})
endforeach()

# roundelay_sources(folder result): sets `result` to the folder's *.cc, with those of sub-folders that have no row.
function(roundelay_sources folder result)
  set(patterns ${PROJECT_SOURCE_DIR}/csrc/${folder}/*.cc)
  file(GLOB inside LIST_DIRECTORIES true RELATIVE ${PROJECT_SOURCE_DIR}/csrc ${PROJECT_SOURCE_DIR}/csrc/${folder}/*)
  foreach(sub IN LISTS inside)
    if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/csrc/${sub} AND NOT sub IN_LIST ROUNDELAY_FOLDERS)
      list(APPEND patterns ${PROJECT_SOURCE_DIR}/csrc/${sub}/*.cc)
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# roundelay_folder(NAME [libraries...])
# Makes the target of a row of csrc/includes.txt. NAME a/b makes the target rl_a_b, a static library of the folder's
# sources (an interface library if there are none). It links the targets of its row, and these libraries.
# With ROUNDELAY_CHECK_EDGES the same objects are also linked as a shared library without undefined symbols, against the shared
# libraries of the row only: a call over a forbidden edge does not link.
# rl_ of a folder in ROUNDELAY_SHARED_FOLDERS is a shared library.
function(roundelay_folder folder)
  string(REPLACE "/" "_" name ${folder})
  roundelay_sources(${folder} sources)
  set(links ${ARGN})
  set(edges ${ARGN})
  set(row ${ROUNDELAY_LINKS_${folder}})
  if(NOT folder STREQUAL base)
    list(APPEND row base)
  endif()
  foreach(link IN LISTS row)
    string(REPLACE "/" "_" link_name ${link})
    if(TARGET rl_${link_name})  # nvcc's own folders are none
      list(APPEND links rl_${link_name})
      list(APPEND edges edge_${link_name})
    endif()
  endforeach()

  if(NOT sources)
    add_library(rl_${name} INTERFACE)
    target_link_libraries(rl_${name} INTERFACE roundelay_flags ${links})
    if(ROUNDELAY_CHECK_EDGES)
      add_library(edge_${name} INTERFACE)
      target_link_libraries(edge_${name} INTERFACE ${edges})
    endif()
    return()
  endif()

  add_library(obj_${name} OBJECT ${sources})
  target_link_libraries(obj_${name} PUBLIC roundelay_flags ${links})
  if(ROUNDELAY_PRECOMPILE AND NOT "MPI::MPI_CXX" IN_LIST ARGN)  # MPI's own flags do not fit the headers
    target_precompile_headers(obj_${name} REUSE_FROM often)
  endif()
  set(kind STATIC)
  if(folder IN_LIST ROUNDELAY_SHARED_FOLDERS)
    set(kind SHARED)
  endif()
  add_library(rl_${name} ${kind} $<TARGET_OBJECTS:obj_${name}>)
  target_link_libraries(rl_${name} PUBLIC roundelay_flags ${links})
  if(ROUNDELAY_CHECK_EDGES)
    add_library(edge_${name} SHARED $<TARGET_OBJECTS:obj_${name}>)
    # These shared libraries do not pass on their links, so that only the table's own edges are open.
    target_link_libraries(edge_${name} PRIVATE roundelay_flags ${edges})
    target_link_options(edge_${name} PRIVATE -Wl,-z,defs)
    set_target_properties(edge_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/edges)
  endif()
endfunction()

# roundelay_compiled(folder result): sets `result` to the target that compiles the folder's sources, or to "".
function(roundelay_compiled folder result)
  string(REPLACE "/" "_" name ${folder})
  if(TARGET obj_${name})
    set(${result} obj_${name} PARENT_SCOPE)
  else()
    set(${result} "" PARENT_SCOPE)
  endif()
endfunction()

# roundelay_module(name symbols [folder]): makes a module of the Python package, or of a folder in it, that exports
# these symbols.
function(roundelay_module name symbol)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${name}.version)
  file(WRITE ${script} "{ global: ${symbol}; local: *; };\n")
  target_link_options(${name} PRIVATE -Wl,--version-script=${script})
  if(NOT ROUNDELAY_SANITIZE)  # clang has a sanitizer's functions in the programs
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  set_target_properties(${name} PROPERTIES PREFIX "" LINK_DEPENDS ${script} INSTALL_RPATH "$ORIGIN")
  if(ROUNDELAY_IN_TREE)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/python/roundelay/${ARGN})
  endif()
  add_dependencies(modules ${name})
  install(TARGETS ${name} LIBRARY DESTINATION roundelay/${ARGN})
endfunction()
