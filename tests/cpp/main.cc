// The main function of every C++ test program (Catch2 2; version 3 brings its own as a library).
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
