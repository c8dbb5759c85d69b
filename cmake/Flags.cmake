# The compiler flags of all targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_UNITY_BUILD ${ROUNDELAY_UNITY})

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION} has no complete C++20; install a newer one: apt-get install g++-12")
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(roundelay_flags INTERFACE)
target_include_directories(roundelay_flags INTERFACE ${PROJECT_SOURCE_DIR}/csrc)
# nvcc does not know these flags.
target_compile_options(roundelay_flags INTERFACE
                       "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow>")
if(ROUNDELAY_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # A unity build includes sources, and g++ then warns about their anonymous namespaces as if they were in a header.
  target_compile_options(roundelay_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
if(ROUNDELAY_WERROR)
  target_compile_options(roundelay_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(roundelay_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
endif()
target_link_libraries(roundelay_flags INTERFACE Threads::Threads)

if(ROUNDELAY_SANITIZE)
  set(sanitize -fsanitize=${ROUNDELAY_SANITIZE} -fno-omit-frame-pointer)
  if(ROUNDELAY_SANITIZE MATCHES undefined)
    list(APPEND sanitize -fno-sanitize-recover=all)
  endif()
  if(ROUNDELAY_SANITIZE MATCHES address AND ROUNDELAY_SANITIZE MATCHES undefined)
    # These checks double the compile time. AddressSanitizer finds most of their errors, and preset ubsan has them.
    list(APPEND sanitize -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  target_compile_options(roundelay_flags INTERFACE ${sanitize})
  target_link_options(roundelay_flags INTERFACE ${sanitize})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # With AddressSanitizer's instrumentation g++ warns that the standard library's <regex> is uninitialised.
    target_compile_options(roundelay_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(ROUNDELAY_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # g++ warns that TSan does not model fences. The code uses operations that TSan models.
    target_compile_options(roundelay_flags INTERFACE -Wno-tsan)
  endif()
endif()
