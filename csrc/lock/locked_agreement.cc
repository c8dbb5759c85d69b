#include "lock/locked_agreement.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "wire/layout.h"
#include "wire/reader.h"
#include "wire/writer.h"

namespace roundelay::lock {
namespace {

// Writes the change into the cell. False: it does not fit.
bool write(const ByteChange& change, Cell& cell) {
  Bytes bytes;
  wire::Writer out(bytes);
  wire::layout(out, change);
  if (bytes.size() > sizeof(cell.words)) return false;
  cell.words = {};
  std::memcpy(cell.words.data(), bytes.data(), bytes.size());
  return true;
}

// Reads the change from the cell. The bytes after it say nothing.
Result<ByteChange> read(const Cell& cell) {
  ByteChange change;
  wire::Reader in(std::as_bytes(std::span(cell.words)));
  wire::layout(in, change);
  if (!in.ok()) return in.error();
  return change;
}

}  // namespace

LockedAgreement::LockedAgreement(std::uint64_t lock, std::size_t number, wire::Submission last)
    : lock_(lock), number_(number), request_(std::move(last.request)), base_(std::move(last.values)) {
  assert(number < kLockedAgreements);
}

bool LockedAgreement::file(std::string_view values) {
  if (filed_ != entered_ || !write(change_between(base_, values), cell_)) return false;
  cell_.submission = announcement(lock_, ++filed_);
  values_ = values;
  return true;
}

Result<Agreed> LockedAgreement::enter(const std::vector<Cell>& cells, const std::vector<int>& ranks) {
  Merger merger(request_.fields, request_.root);
  const std::uint64_t submission = announcement(lock_, ++entered_);
  for (std::size_t member = 0; member < cells.size(); ++member) {
    const int rank = ranks[member];
    const Result<ByteChange> change = read(cells[member]);
    if (cells[member].submission != submission || !change.ok() || !fits(*change, base_.size())) {
      return Status::internal("rank " + std::to_string(rank) + " shows no values for submission " +
                              std::to_string(entered_) + " of agreement '" + request_.name + "' in lock " +
                              std::to_string(lock_));
    }
    std::string values = base_;
    apply_change(*change, values);
    merger.add(rank, values);
  }
  Agreed agreed = merger.finish();
  base_ = agreed.values;
  return agreed;
}

}  // namespace roundelay::lock
