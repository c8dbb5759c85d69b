// The arithmetic of one run of power_sgd on one bucket. A run sums two messages over all ranks: first the
// dense elements with the left factors, then the right factors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/power_sgd/layout.h"
#include "compress/shards.h"

namespace roundelay::compress::power_sgd {

// Call the functions that return a Status in the order in which they stand here. The arguments of make()
// outlive it. Errors: those of Arithmetic.
class Run {
 public:
  // Makes the run, and takes its memory from the workspace. Errors: those of Workspace::scratch().
  static Result<Run> make(const Options& options, Workspace& workspace, const Bucket& bucket);

  // Puts the dense elements into the first message, before the node adds up its gradients. In the first run
  // it makes random right factors.
  [[nodiscard]] Status begin() const;
  // Returns the call of the node's fabric that adds up its gradients.
  [[nodiscard]] collective::ReducescatterCall node_sums(const Workspace& workspace) const {
    return scatter_in_node(bucket_, workspace, place_, {1.0, weight_});
  }
  // Adds the residual to the shard, and puts its part of the left factors into the first message.
  [[nodiscard]] Status project() const;
  // Takes the sums of the first message, and puts the shard's part of the right factors into the second one.
  [[nodiscard]] Status project_back() const;
  // Takes the sums of the second message, and computes the bucket's elements and the shard's new residual.
  [[nodiscard]] Status finish() const;

  // Return the calls that sum the first message, and the second one, over all ranks.
  [[nodiscard]] collective::AllreduceCall sum_of_left(const Workspace& workspace) const {
    return sum_of(layout_.dense_elements + layout_.left, workspace);
  }
  [[nodiscard]] collective::AllreduceCall sum_of_right(const Workspace& workspace) const {
    return sum_of(layout_.right, workspace);
  }
  [[nodiscard]] bool has_matrices() const { return layout_.right > 0; }

 private:
  Run(const Options& options, Workspace& workspace, const Bucket& bucket);

  [[nodiscard]] collective::AllreduceCall sum_of(std::size_t elements, const Workspace& workspace) const;
  [[nodiscard]] Status copy_dense(bool back) const;
  [[nodiscard]] Status send(const std::byte* factors, std::size_t count, std::size_t before) const;
  [[nodiscard]] Status receive(std::byte* factors, std::size_t count, std::size_t before) const;
  [[nodiscard]] Status expand(const Matrix& matrix) const;
  // Return the matrix's factors: the left ones, the right ones, and the right ones of the last run.
  [[nodiscard]] kernels::Vectors left(const Matrix& matrix) const;
  [[nodiscard]] kernels::Vectors right(const Matrix& matrix) const;
  [[nodiscard]] kernels::Vectors last(const Matrix& matrix) const;
  // Returns a block of the matrix, with its part of these factors. `kept`: it lies in the shard, and so has a
  // residual.
  [[nodiscard]] kernels::LowRankBlock block_of(const Matrix& matrix, const Block& block,
                                               kernels::Vectors left, kernels::Vectors right,
                                               bool kept) const;

  const Options& options_;
  Arithmetic& math_;
  const Bucket bucket_;
  const FactorLayout layout_;
  const DType dtype_, real_,
      wire_type_;  // the types of the bucket's elements, of residual and factors, of messages
  const Place place_;
  const Slice shard_;          // the elements that this rank works on
  const std::int64_t weight_;  // divides a node's sums in the bucket, lest halves overflow
  double share_ = 0;           // the result times this is the part of it that this rank's node has sent
  std::byte* factors_ = nullptr;
  std::byte* message_ = nullptr;
  std::byte* sums_ = nullptr;  // of project_back()
};

}  // namespace roundelay::compress::power_sgd
