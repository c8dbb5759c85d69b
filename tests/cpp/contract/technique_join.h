// A test of sessions that every technique with a state can run: a rank that joins.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "compress/technique.h"
#include "tests/cpp/contract/session_trip.h"
#include "tests/cpp/contract/technique_bucket.h"

namespace roundelay::contract {

// Reduces a bucket of ones. Returns the error, also if the technique did not apply; "" if there is none.
inline std::string apply_to_ones(TechniqueBucket& bucket, std::size_t count) {
  std::fill_n(bucket.elements(), count, 1.0F);
  if (const Status status = bucket.run("b"); !status.ok()) return status.message();
  return bucket.outcome().applied ? "" : "the technique did not apply";
}

// Reduces a bucket of ones alone, as the other rank has joined. Returns the error, "" if there is none.
inline std::string step_alone(TechniqueBucket& bucket, std::size_t count) {
  const Bytes state = bucket.state();
  std::fill_n(bucket.elements(), count, 1.0F);
  if (const Status status = bucket.run("b"); !status.ok()) return status.message();
  if (bucket.outcome().applied) return "the technique applied while rank 0 had joined";
  if (bucket.read() != std::vector<float>(count, 1.0F)) return "wrong values alone";
  return bucket.state() == state ? "" : "the state has changed";
}

// Of two ranks, lets one join after a step, and the other one after more steps. These must go densely, and
// the technique must keep its state. `after` then checks the next steps: it returns what is wrong, or "".
inline void require_join_keeps_state(const compress::TechniquePtr& technique, std::size_t count,
                                     const std::function<std::string(TechniqueBucket&)>& after) {
  SessionWorld world(2);
  world.run([&](runtime::Session& session, int rank) -> std::string {
    TechniqueBucket bucket(session, technique, count);
    if (!bucket.ok().ok()) return bucket.ok().message();
    if (std::string wrong = apply_to_ones(bucket, count); !wrong.empty()) return wrong;
    const Bytes state = bucket.state();
    for (int i = 0; rank == 1 && i < 3; ++i)
      if (std::string wrong = step_alone(bucket, count); !wrong.empty()) return wrong;
    if (const auto last = join(session); !last.ok()) return last.status().message();
    if (bucket.state() != state) return "the state has changed during join()";
    return after(bucket);
  });
  world.shutdown();
}

}  // namespace roundelay::contract
