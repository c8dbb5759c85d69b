// A gradient pool as Python has it.
#pragma once

#include <memory>

#include "adapter/gradient_pool.h"
#include "runtime/context.h"

namespace roundelay::bindings {

// Of one init(): in another one the peers are others.
struct BoundPool {
  adapter::GradientPool pool;
  ProcessSetId process_set;
  std::weak_ptr<runtime::Context> context;
};

}  // namespace roundelay::bindings
