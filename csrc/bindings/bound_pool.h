// The Python class GradientPool.
#pragma once

#include <memory>
#include <string>

#include "adapter/gradient_pool.h"
#include "adapter/technique_choice.h"
#include "runtime/context.h"
#include "submit/handles.h"

namespace roundelay::bindings {

// A gradient pool belongs to one init(): after another one its memory may be shared with other ranks than
// those of the process set.
struct BoundPool {
  adapter::GradientPool pool;
  ProcessSetId process_set;
  std::weak_ptr<runtime::Context> context;
};

// Says how an allreduce reduces: the operation, and the factors before and after it in the type that travels.
struct Reduction {
  int op;  // the value of a ReduceOp
  double prescale_factor;
  double postscale_factor;
  bool cast_back;  // results are cast into the pool's result memory if it has one
};

// Submits an allreduce in place, which takes this technique. Call it with the GIL. Raises ValueError if the
// pool is another init()'s or the range is not in the pool, and the errors of Context::submit(). The peers
// hear of them.
submit::Handle allreduce(BoundPool& pool, const adapter::PoolRange& range, const std::string& name,
                         const Reduction& reduction, const adapter::TechniqueUse& technique);

}  // namespace roundelay::bindings
