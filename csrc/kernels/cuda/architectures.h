// The GPUs for which the kernels are compiled. Pure.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "base/status.h"

namespace roundelay::kernels::cuda {

// Numbers as in __CUDA_ARCH__: 900 is compute capability 9.0.
struct Architectures {
  std::span<const int> compiled;  // not empty
  bool newer = false;             // the driver can compile the newest one's code for later GPUs
};

inline std::string capability_text(int architecture) {
  return std::to_string(architecture / 100) + "." + std::to_string(architecture % 100 / 10);
}

// Returns whether the code runs on this GPU: code runs on later ones of the same major number, too.
inline bool covers(const Architectures& of, int architecture) {
  const auto runs = [architecture](int compiled) {
    return compiled / 100 == architecture / 100 && compiled <= architecture;
  };
  return std::ranges::any_of(of.compiled, runs) ||
         (of.newer && architecture >= *std::ranges::max_element(of.compiled));
}

// Returns the compute capabilities: "8.0, 9.0, 10.0 and later".
inline std::string text_of(const Architectures& of) {
  std::string text;
  for (const int one : of.compiled) text += (text.empty() ? "" : ", ") + capability_text(one);
  return text + (of.newer ? " and later" : "");
}

// Returns the error of a GPU on which the code does not run.
inline Status unfit(int device, int architecture, const Architectures& of) {
  return Status::unavailable(
      "GPU " + std::to_string(device) + " has compute capability " + capability_text(architecture) +
      ", but this build is for " + text_of(of) + ": build it with -DROUNDELAY_CUDA_ARCHITECTURES=" +
      std::to_string(architecture / 10) + ", or hide this GPU by CUDA_VISIBLE_DEVICES");
}

}  // namespace roundelay::kernels::cuda
