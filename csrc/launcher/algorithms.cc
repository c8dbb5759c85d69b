// Tells the algorithms to Python code that runs without torch (python/roundelay/tuning/file.py).
#include <string>

#include "base/algorithms.h"

// Returns a line for each algorithm: "allreduce ring", in the order of base/algorithms.def. The text lives as
// long as the library. Thread-safe.
extern "C" __attribute__((visibility("default"))) const char* roundelay_algorithms() {
  static const std::string text = [] {
    std::string lines;
    for (const roundelay::AlgorithmName& one : roundelay::kAlgorithmNames)
      lines.append(roundelay::traits_of(one.operation).name).append(" ").append(one.name).append("\n");
    return lines;
  }();
  return text.c_str();
}
