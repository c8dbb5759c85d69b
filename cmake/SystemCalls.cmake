# Writes generated/system_calls.inc: an entry {number, name} for each system call of the kernel's headers.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dM -E -x c++ -include sys/syscall.h /dev/null
                OUTPUT_VARIABLE macros COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "#define __NR_[a-z0-9_]+ " system_calls "${macros}")
list(FILTER system_calls EXCLUDE REGEX "__NR_(syscalls|arch_specific_syscall) ")  # they are counts
list(SORT system_calls)
list(TRANSFORM system_calls REPLACE "#define __NR_(.+) " "{__NR_\\1, \"\\1\"},\n")
list(JOIN system_calls "" system_calls)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/system_calls.inc CONTENT "${system_calls}")
