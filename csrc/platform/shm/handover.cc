#include "platform/shm/handover.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace roundelay::platform {
namespace {

// The packets of a handover: HandoverRequest (member to first member), Offer with the descriptor (back),
// MapResult (member to first member), MapResult of all (back).
struct HandoverRequest {
  std::uint64_t key;
  std::uint32_t member;
};
struct Offer {
  std::uint64_t bytes;  // 0: the memory could not be made
};
struct MapResult {
  char text[512];  // the error; empty: none

  explicit MapResult(const Status& status = {}) : text{} {
    const std::string& message = status.message();
    std::memcpy(text, message.data(), std::min(message.size(), sizeof text - 1));
  }
  [[nodiscard]] Status status() const {
    return text[0] == '\0' ? Status{} : Status::unavailable(std::string(text, ::strnlen(text, sizeof text)));
  }
};

template <typename T>
ConstByteSpan bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
Result<T> read(const Packet& packet) {
  if (packet.bytes.size() != sizeof(T)) return Status::unavailable("an unreadable packet");
  T value;
  std::memcpy(static_cast<void*>(&value), packet.bytes.data(), sizeof(T));
  return value;
}

template <typename T>
Result<T> receive(const UnixSocket& socket, Deadline deadline) {
  const Result<Packet> packet = socket.receive(deadline);
  if (!packet.ok()) return packet.status();
  return read<T>(*packet);
}

Status not_agreed(const Status& status) { return Status::aborted("shared memory: " + status.message()); }

Status from_rank(int rank, const Status& status) {
  return status.ok() ? status : Status::unavailable("rank " + std::to_string(rank) + ": " + status.message());
}

}  // namespace

Result<ShmSocket> ShmSocket::open() {
  auto listener = UnixListener::open();
  if (!listener.ok()) return listener.status();
  return ShmSocket(std::move(listener).value());
}

// Waits until all other members have asked for the memory. Drops strangers, and connections from reach() and
// listening_process().
Result<std::vector<ShmSocket::Client>> ShmSocket::gather(std::uint64_t key, const std::vector<int>& ranks,
                                                         Deadline deadline) {
  const std::size_t others = ranks.size() - 1;
  std::vector<Client> clients;
  std::vector<bool> here(ranks.size());
  const auto admit = [&](Client client) {
    if (client.member == 0 || client.member > others || here[client.member]) return;
    here[client.member] = true;
    clients.push_back(std::move(client));
  };
  const auto of_this_group = [&](const Client& client) { return client.key == key; };
  const auto first = std::stable_partition(early_.begin(), early_.end(), std::not_fn(of_this_group));
  std::for_each(first, early_.end(), [&](Client& client) { admit(std::move(client)); });
  early_.erase(first, early_.end());
  while (clients.size() < others) {
    auto socket = listener_.accept(deadline);
    if (!socket.ok()) return socket.status();
    if (!*socket) {
      const auto missing = std::find(here.begin() + 1, here.end(), false) - here.begin();
      return Status::unavailable("rank " + std::to_string(ranks[static_cast<std::size_t>(missing)]) +
                                 " did not come for the shared memory in time");
    }
    const auto request = receive<HandoverRequest>(**socket, deadline);
    if (!request.ok()) continue;
    Client client{std::move(**socket), request->key, request->member};
    if (of_this_group(client)) {
      admit(std::move(client));
    } else {
      early_.push_back(std::move(client));
    }
  }
  return clients;
}

Result<SharedMemory> ShmSocket::hand_out(std::uint64_t key, const std::vector<int>& ranks, std::size_t bytes,
                                         const Prepare& prepare, Deadline deadline) {
  auto clients = gather(key, ranks, deadline);
  if (!clients.ok()) return not_agreed(clients.status());
  auto memory = SharedMemory::create(bytes);
  Status outcome = memory.ok() ? prepare(*memory) : memory.status();
  outcome = from_rank(ranks.front(), outcome);
  const Offer offer{memory.ok() ? bytes : 0};
  const auto rank_of = [&](const Client& client) { return ranks[client.member]; };
  for (const Client& client : *clients) {
    const Status sent = client.socket.send(bytes_of(offer), memory.ok() ? &memory->fd() : nullptr);
    if (outcome.ok()) outcome = from_rank(rank_of(client), sent);
  }
  for (const Client& client : *clients) {
    const auto result = receive<MapResult>(client.socket, deadline);
    if (outcome.ok()) outcome = from_rank(rank_of(client), result.ok() ? result->status() : result.status());
  }
  for (const Client& client : *clients) static_cast<void>(client.socket.send(bytes_of(MapResult(outcome))));
  if (!outcome.ok()) return outcome;
  return memory;
}

Result<SharedMemory> take_over(const std::string& address, std::uint64_t key, int member,
                               const Prepare& prepare, Deadline deadline) {
  const auto socket = UnixSocket::connect(address, deadline);
  if (!socket.ok()) return not_agreed(socket.status());
  const Status sent = socket->send(bytes_of(HandoverRequest{key, static_cast<std::uint32_t>(member)}));
  if (!sent.ok()) return not_agreed(sent);
  auto packet = socket->receive(deadline);
  if (!packet.ok()) return not_agreed(packet.status());
  const auto offer = read<Offer>(*packet);
  if (!offer.ok()) return not_agreed(offer.status());
  Status outcome;
  SharedMemory memory;
  if (offer->bytes > 0) {
    auto mapped = SharedMemory::map(std::move(packet->fd), offer->bytes);
    outcome = mapped.ok() ? prepare(*mapped) : mapped.status();
    if (mapped.ok()) memory = std::move(mapped).value();
  }
  static_cast<void>(socket->send(bytes_of(MapResult(outcome))));
  const auto result = receive<MapResult>(*socket, deadline);
  if (!result.ok()) return not_agreed(result.status());
  ROUNDELAY_RETURN_IF_ERROR(result->status());
  return memory;
}

Status reach(const std::string& address) { return UnixSocket::try_connect(address).status(); }

pid_t listening_process(const std::string& address) {
  const auto socket = UnixSocket::try_connect(address);
  return socket.ok() && *socket ? (*socket)->process() : 0;
}

}  // namespace roundelay::platform
