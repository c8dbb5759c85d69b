// The store at which ranks without MPI meet. The launcher's environment describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace roundelay::bootstrap {

struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::string host;  // the store's host name or address, and its port
  std::uint16_t port = 0;
  bool serve = false;             // this process serves the store
  std::optional<int> listener;    // with `serve`: descriptor of a socket that listens on the port already
  std::string job;                // names the job and its restart; differs between jobs that share a store
  std::optional<int> local_rank;  // the launcher's count; init() checks it
  std::optional<int> local_size;  // likewise
};

}  // namespace roundelay::bootstrap
