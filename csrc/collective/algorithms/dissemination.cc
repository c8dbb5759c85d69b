#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {

// Every member has heard, directly or not, of 2^(k+1) members after round k, and of all in the end.
Program dissemination_barrier(Exchange& net) {
  for (int distance = 1; distance < net.size(); distance *= 2) {
    const int from = (net.index() + net.size() - distance) % net.size();
    const Transfer heard = net.receive(from, {});
    const Transfer told = net.send((net.index() + distance) % net.size(), {});
    co_await net.done(heard, told);
  }
}

}  // namespace roundelay::collective
