#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {

Program single(Exchange& net, const Call& call) {
  net.work().finish_single(call);
  co_return;
}

}  // namespace roundelay::collective
