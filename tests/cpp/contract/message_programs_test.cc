// Random programs of sends and receives, checked against a model. One thread steps the members in random
// orders, over transports whose transfers take a random time.
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/message_contract.h"
#include "tests/cpp/contract/message_transports.h"
#include "tests/cpp/effort.h"

namespace roundelay::contract {
namespace {

using collective::kMostPayload;
using collective::TransferId;

// Says later than its inner transport that a transfer is over.
class Fitful final : public Transport {
 public:
  Fitful(std::unique_ptr<Transport> inner, unsigned seed) : inner_(std::move(inner)), random_(seed) {}
  [[nodiscard]] int index() const override { return inner_->index(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override {
    return inner_->send(peer, data, tag);
  }
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override {
    return inner_->receive(peer, data, tag);
  }
  Result<bool> test(TransferId id) override {
    if (random_() % 3 != 0) return false;
    return inner_->test(id);
  }

 private:
  const std::unique_ptr<Transport> inner_;
  std::mt19937 random_;
};

// The k-th message of a pair and tag has this size, and its receive this one: seldom another. Receives from
// any do not know which message they take, so that all of a receiver's tag have one size.
struct Sizes {
  unsigned seed;

  static bool from_any(int to, MessageTag tag) { return (static_cast<unsigned>(to) + tag) % 3 == 0; }
  [[nodiscard]] std::size_t sent(int from, int to, MessageTag tag, unsigned number) const {
    static constexpr std::size_t kSizes[] = {0, 1, 8, 333, kMostPayload, kMostPayload + 1, 3000, 70'001};
    if (from_any(to, tag)) return kSizes[hash(0, to, tag, 0) % std::size(kSizes)];
    return kSizes[hash(from, to, tag, number) % std::size(kSizes)];
  }
  [[nodiscard]] std::size_t received(int from, int to, MessageTag tag, unsigned number) const {
    const bool differs = !from_any(to, tag) && hash(from, to, tag, number + 1000) % 16 == 0;
    return sent(from, to, tag, number) + (differs ? 1 : 0);
  }

 private:
  [[nodiscard]] unsigned hash(int from, int to, MessageTag tag, unsigned number) const {
    std::seed_seq seeds{seed, static_cast<unsigned>(from), static_cast<unsigned>(to), tag, number};
    unsigned value = 0;
    seeds.generate(&value, &value + 1);
    return value;
  }
};

struct Post {
  bool sends;
  int peer;  // -1: any
  MessageTag tag;
};

// Returns what each member posts, in order.
std::vector<std::vector<Post>> random_program(int size, std::mt19937& random) {
  std::vector<std::vector<Post>> posts(static_cast<std::size_t>(size));
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from == to) continue;
      for (const MessageTag tag : {MessageTag{0}, MessageTag{7}, MessageTag{UINT32_MAX}}) {
        const auto count = static_cast<unsigned>(random() % 5);
        for (unsigned i = 0; i < count; ++i) {
          posts[static_cast<std::size_t>(from)].push_back({true, to, tag});
          posts[static_cast<std::size_t>(to)].push_back({false, Sizes::from_any(to, tag) ? -1 : from, tag});
        }
      }
    }
  }
  for (auto& of_member : posts) std::shuffle(of_member.begin(), of_member.end(), random);
  return posts;
}

// One member runs its program, and checks what becomes of its messages.
class Runner {
 public:
  Runner(std::unique_ptr<Transport> transport, int size, int self, Sizes sizes, std::vector<Post> posts)
      : messages_(std::move(transport), message_group(size, self)),
        self_(self),
        sizes_(sizes),
        posts_(std::move(posts)) {}

  // Posts the next message, or looks at an open one. Returns false when this member and all peers are done.
  bool step(std::mt19937& random) {
    if (next_ < posts_.size() && random() % 2 == 0) {
      post(posts_[next_++]);
    } else if (!open_.empty()) {
      look_at(open_.begin() + static_cast<std::ptrdiff_t>(random() % open_.size()));
    } else if (next_ == posts_.size()) {
      const Result<bool> left = messages_.leave();
      REQUIRE(left.ok());
      return !*left;
    }
    return true;
  }

  // Those of receives from any in the order of posting: messages of one peer come in its order.
  void check_from_any() const {
    std::map<std::pair<int, MessageTag>, unsigned> numbers;
    for (const Open& one : over_from_any_) {
      const unsigned number = numbers[{one.peer, one.post.tag}]++;
      REQUIRE(*one.memory == stamped(one.memory->size(), one.peer, self_, one.post.tag, number));
    }
  }

 private:
  struct Open {
    Post post;
    unsigned number;  // of messages posted of this kind before
    MessageId id;
    std::unique_ptr<Bytes> memory;
    int peer = -1;
  };

  void post(const Post& post) {
    const unsigned number = counts_[{post.sends, post.peer, post.tag}]++;
    auto memory = std::make_unique<Bytes>();
    Result<MessageId> id = Status::internal("not posted");
    if (post.sends) {
      *memory = stamped(sizes_.sent(self_, post.peer, post.tag, number), self_, post.peer, post.tag, number);
      id = messages_.send(post.peer, *memory, post.tag);
    } else {
      memory->resize(sizes_.received(std::max(post.peer, 0), self_, post.tag, number));
      id = post.peer < 0 ? messages_.receive_any(*memory, post.tag)
                         : messages_.receive(post.peer, *memory, post.tag);
    }
    REQUIRE(id.ok());
    open_.push_back({post, number, *id, std::move(memory)});
  }

  void look_at(std::deque<Open>::iterator at) {
    const Result<std::optional<int>> over = messages_.test(at->id);
    if (over.ok() && !over->has_value()) return;
    const Post& post = at->post;
    const int from = post.sends ? self_ : post.peer, to = post.sends ? post.peer : self_;
    if (post.peer < 0) {
      REQUIRE(over.ok());
      at->peer = **over;
      const auto after = std::find_if(over_from_any_.begin(), over_from_any_.end(), [&](const Open& other) {
        return other.post.tag == post.tag && other.number > at->number;
      });
      over_from_any_.insert(after, std::move(*at));
    } else if (sizes_.sent(from, to, post.tag, at->number) ==
               sizes_.received(from, to, post.tag, at->number)) {
      REQUIRE(over.ok());
      REQUIRE(**over == post.peer);
      REQUIRE(*at->memory == stamped(at->memory->size(), from, to, post.tag, at->number));
    } else {
      REQUIRE(over.status().code() == StatusCode::kMismatch);
    }
    open_.erase(at);
  }

  PointToPoint messages_;
  const int self_;
  const Sizes sizes_;
  const std::vector<Post> posts_;
  std::size_t next_ = 0;
  std::map<std::tuple<bool, int, MessageTag>, unsigned> counts_;
  std::deque<Open> open_;
  std::vector<Open> over_from_any_;
};

void run_programs(
    unsigned seeds, const std::function<Transports(int size, unsigned seed)>& make,
    const std::function<void()>& after_step = [] {}) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const int size = 2 + static_cast<int>(seed % 5);
    auto posts = random_program(size, random);
    Transports transports = make(size, seed);
    std::vector<std::unique_ptr<Runner>> runners;
    for (int i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(i);
      runners.push_back(std::make_unique<Runner>(
          std::make_unique<Fitful>(std::move(transports[at]), static_cast<unsigned>(random())), size, i,
          Sizes{seed}, std::move(posts[at])));
    }
    std::vector<Runner*> open;
    for (const auto& runner : runners) open.push_back(runner.get());
    std::size_t turns = 0;
    while (!open.empty()) {
      const std::size_t at = random() % open.size();
      // One member also makes many steps in a row, so that it gets as far ahead as it can.
      for (int steps = random() % 4 == 0 ? 30 : 1; steps > 0 && at < open.size(); --steps) {
        if (open[at]->step(random)) continue;
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      }
      after_step();
      REQUIRE(++turns < 1'000'000);
    }
    for (const auto& runner : runners) runner->check_from_any();
  }
}

TEST_CASE("random programs of messages over a hub", "[messages][one thread]") {
  run_programs(testing::seeds(200U), [](int size, unsigned) { return hub_transports(size); });
}

TEST_CASE("random programs of messages over a simulated network", "[messages][one thread]") {
  std::shared_ptr<collective::SimulatedNetwork> network;
  const auto make = [&](int size, unsigned seed) {
    network = std::make_shared<collective::SimulatedNetwork>(size, std::chrono::microseconds(1 + seed % 7),
                                                             1e8 * (1 + seed % 3));
    return hub_transports(size, network);
  };
  run_programs(testing::seeds(60U), make, [&] { network->advance(); });
}

TEST_CASE("random programs of messages over shared memory", "[messages][one thread]") {
  run_programs(testing::seeds(100U), [](int size, unsigned) { return shm_transports(size); });
}

TEST_CASE("random programs of messages over tcp", "[messages][one thread]") {
  run_programs(testing::seeds(40U), [](int size, unsigned) { return tcp_transports(size); });
}

TEST_CASE("random programs of messages over nodes", "[messages][one thread]") {
  run_programs(testing::seeds(60U), [](int size, unsigned) { return split_transports(size); });
}

}  // namespace
}  // namespace roundelay::contract
