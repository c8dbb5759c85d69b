// Where ranks that have no MPI meet, as their launcher's environment says it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace roundelay::bootstrap {

struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::string host;  // of the store
  std::uint16_t port = 0;
  bool serve = false;             // this rank is the store's server; otherwise somebody else is
  std::optional<int> listener;    // serve: a socket that listens on the port already, by its descriptor
  std::string job;                // job and restart: what keeps apart the jobs that share a store
  std::optional<int> local_rank;  // as the launcher counts; must be what we find
  std::optional<int> local_size;
};

}  // namespace roundelay::bootstrap
