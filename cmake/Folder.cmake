# Compiles the standard headers that most files include once for all folders, and not for each file again.
# The list has those that take long and that at least 15 files include.
if(ROUNDELAY_PRECOMPILE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/often.cc CONTENT "// Nothing: its target has the precompiled headers.\n")
  add_library(often OBJECT ${PROJECT_BINARY_DIR}/often.cc)
  target_link_libraries(often PRIVATE roundelay_flags)
  target_precompile_headers(often PRIVATE <algorithm> <atomic> <chrono> <deque> <functional> <map> <memory> <optional>
                            <span> <string> <string_view> <thread> <utility> <vector>)
endif()

# roundelay_folder(NAME [SUBFOLDERS sub...] LINKS targets...)
# Makes the target of one folder of csrc. NAME a/b makes the target rl_a_b, a static library of the folder's *.cc (an interface
# library if there are none). LINKS are the folders that it may include; csrc/README.md has the table.
# With ROUNDELAY_CHECK_EDGES the same objects are also linked as a shared library without undefined symbols, against the shared
# libraries of LINKS only: a call over a forbidden edge does not link.
function(roundelay_folder folder)
  cmake_parse_arguments(arg "" "" "SUBFOLDERS;LINKS" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  foreach(sub IN LISTS arg_SUBFOLDERS)
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${sub}/*.cc)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  set(links)
  set(edges)
  foreach(link IN LISTS arg_LINKS)
    if(TARGET ${link})
      list(APPEND links ${link})  # a library outside csrc
      list(APPEND edges ${link})
    else()
      string(REPLACE "/" "_" link_name ${link})
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
  if(ROUNDELAY_PRECOMPILE AND NOT "MPI::MPI_CXX" IN_LIST arg_LINKS)  # MPI's own flags do not fit the headers
    target_precompile_headers(obj_${name} REUSE_FROM often)
  endif()
  add_library(rl_${name} STATIC $<TARGET_OBJECTS:obj_${name}>)
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

# roundelay_module(name symbol): makes a module of the Python package that exports one symbol.
function(roundelay_module name symbol)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${name}.version)
  file(WRITE ${script} "{ global: ${symbol}; local: *; };\n")
  target_link_options(${name} PRIVATE -Wl,--version-script=${script} -Wl,-z,defs)
  set_target_properties(${name} PROPERTIES PREFIX "" LINK_DEPENDS ${script})
  if(ROUNDELAY_IN_TREE)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/python/roundelay)
  endif()
  add_dependencies(modules ${name})
  install(TARGETS ${name} LIBRARY DESTINATION roundelay)
endfunction()
