// The Python class GradientPool.
#pragma once

#include <memory>

#include "adapter/gradient_pool.h"
#include "runtime/context.h"

namespace roundelay::bindings {

// A gradient pool belongs to one init(): after another one its memory is shared with the wrong ranks.
struct BoundPool {
  adapter::GradientPool pool;
  ProcessSetId process_set;
  std::weak_ptr<runtime::Context> context;
};

}  // namespace roundelay::bindings
