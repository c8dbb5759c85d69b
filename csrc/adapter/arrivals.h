// Gradients between autograd and their operation: which are there, what `.grad` holds meanwhile, and what a
// gradient's hook does in nearly every step, when the gradient is neither the first of a backward nor the
// last of its group, nor special in any way. Everything else is Python's
// (python/roundelay/torch/gradient_sync.py), on the same state.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "adapter/gradient_pool.h"
#include "adapter/producers.h"
#include "base/status.h"

namespace roundelay::adapter {

class Arrivals;

// One optimizer's.
struct ArrivalRules {
  int passes_per_step = 1;
  int holding_back = 0;    // in no_sync(): how deep
  bool recording = false;  // somebody wants to hear of each gradient
  int noted_in = -1;       // the backward (graph task) whose end is known to be wanted
};

// What `.grad` holds.
enum class Holds : unsigned char {
  kLocal,    // this rank's contribution, or nothing
  kFlight,   // a tensor that is being reduced: nobody may touch it
  kReduced,  // what all ranks agreed on since the last step
};

// One parameter's gradient, in one group at a time. Does not keep the parameter alive.
struct Arrival {
  explicit Arrival(const at::Tensor& of) : parameter(of.getIntrusivePtr()) {}

  // Undefined when it is gone.
  [[nodiscard]] at::Tensor locked() const;
  // Whether its optimizer is to reduce it: it is not frozen, nor another optimizer's by now.
  [[nodiscard]] bool wanted() const;
  // In the hook after autograd has accumulated. False: Python is to go on from here, counting excepted.
  [[nodiscard]] bool arrive(const ArrivalRules& rules, const at::Tensor& tensor, Accelerator& accelerator);

  c10::weak_intrusive_ptr<c10::TensorImpl> parameter;
  Holds holds = Holds::kLocal;
  int accumulated = 0;  // backward passes in .grad that were not submitted yet
  bool replaced = false;
  at::Tensor in_flight{};  // what is being reduced in the pool

  // The group's.
  Arrivals* group = nullptr;
  std::size_t entry = 0;  // in the pool
  int kind = 0;           // 0: not here
};

// A group's. All calls with the GIL.
class Arrivals {
 public:
  static constexpr int kDense = 1;

  // `pool`: where the members' entries are, and outlives this; null: they are in none.
  explicit Arrivals(GradientPool* pool) : pool_(pool) {}
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // Belongs to no other group from now on.
  void add(std::shared_ptr<Arrival> gradient, std::size_t entry);
  // It is there, dense or (a larger kind) sparse. Whether that makes a group of dense gradients complete.
  Result<bool> note(Arrival& gradient, int kind, Accelerator& accelerator);
  void leave(Arrival& gradient);
  void clear();
  [[nodiscard]] bool waits() const { return here_ > 0; }
  // The current stream goes on behind what has made those that were noted.
  [[nodiscard]] Status gather() { return producers_.gather(); }

  // In a pool. The entry, holding this rank's contribution (or zeros); `.grad` where it can be.
  Result<at::Tensor> take_in(Arrival& gradient, const at::Tensor& parameter);
  // ... if it is an ordinary gradient, not the last, and noted. False: nothing has happened, or it goes wrong
  // again where the caller does it in the ordinary way.
  [[nodiscard]] bool take_in_one_of_many(Arrival& gradient, const at::Tensor& parameter,
                                         Accelerator& accelerator);
  // Nobody waits any more: who lies in the pool is in flight. The places of the other members.
  std::vector<std::size_t> depart();

  int passes = 0;  // since the last step: how often the group was submitted

 private:
  [[nodiscard]] bool departs(Arrival& gradient) const;
  void begin();

  GradientPool* const pool_;
  std::vector<std::shared_ptr<Arrival>> members_;
  std::size_t here_ = 0;
  std::size_t expected_ = 0;  // of those, once the first is here
  Producers producers_;
};

}  // namespace roundelay::adapter
