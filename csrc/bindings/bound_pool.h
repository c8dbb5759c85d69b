// The Python class GradientPool.
#pragma once

#include <memory>

#include "adapter/gradient_pool.h"
#include "runtime/context.h"

namespace roundelay::bindings {

// A gradient pool belongs to one init(): after another one its memory may be shared with other ranks than
// those of the process set.
struct BoundPool {
  adapter::GradientPool pool;
  ProcessSetId process_set;
  std::weak_ptr<runtime::Context> context;
};

}  // namespace roundelay::bindings
