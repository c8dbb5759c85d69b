#include "collective/algorithms/algorithms.h"
#include "collective/alone.h"

namespace roundelay::collective {

Program local(Exchange& /*net*/, Call call) {
  finish_alone(call);
  co_return;
}

}  // namespace roundelay::collective
