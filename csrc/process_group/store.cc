#include "process_group/store.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

namespace roundelay::process_group {
namespace {

// Returns an error of torch's in one line, without its C++ stack.
Status lost(const char* what) {
  const std::string text(what);
  return Status::aborted("the store of torch.distributed: " + text.substr(0, text.find('\n')));
}

// Runs a question to the store, whose errors are exceptions. A store of Python's gets the GIL by itself.
template <typename Question>
auto ask(const Question& question) -> Result<decltype(question())> {
  try {
    return question();
  } catch (const c10::Error& error) {
    return lost(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return lost(error.what());
  }
}

}  // namespace

// The destructor of a store in a file throws, which ends the process, if another rank removes the file while
// it looks (PyTorch 2.13, FileStore.cpp: it asks whether the file exists, and opens it later).
C10dStore::~C10dStore() {
  c10::intrusive_ptr<::c10d::Store> store = store_;
  if (auto* const part = dynamic_cast<::c10d::PrefixStore*>(store.get()))
    store = part->getUnderlyingNonPrefixStore();
  if (dynamic_cast<::c10d::FileStore*>(store.get()) != nullptr) static_cast<void>(store.release());
}

Result<std::uint32_t> C10dStore::count_group(const std::string& name, int size) {
  const std::string key = "roundelay/members of " + name + "/" + std::to_string(size);
  return ask([&] { return static_cast<std::uint32_t>((store_->add(key, 1) - 1) / size + 1); });
}

Status C10dStore::set(const std::string& key, ConstByteSpan value, Deadline /*deadline*/) {
  std::vector<std::uint8_t> bytes(value.size());
  if (!value.empty()) std::memcpy(bytes.data(), value.data(), value.size());
  return ask([&] {
           store_->set(key, bytes);
           return true;
         })
      .status();
}

// Asks again and again: a wait of a TCPStore's that comes to its end writes warnings, and holds up other
// threads.
Result<bool> C10dStore::wait(const std::vector<std::string>& keys, Deadline until, Deadline /*deadline*/) {
  constexpr Duration kLongest = std::chrono::milliseconds(20);
  Duration pause = std::chrono::microseconds(200);
  while (true) {
    Result<bool> came = ask([&] { return store_->check(keys); });
    if (!came.ok() || *came || until.passed()) return came;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongest);
  }
}

Result<bool> C10dStore::has(const std::string& key, Deadline /*deadline*/) {
  return ask([&] { return store_->check({key}); });
}

Result<std::vector<Bytes>> C10dStore::get(const std::vector<std::string>& keys, Deadline /*deadline*/) {
  return ask([&] {
    std::vector<Bytes> values;
    values.reserve(keys.size());
    for (const std::string& key : keys) {
      const std::vector<std::uint8_t> value = store_->get(key);
      const auto* const bytes = reinterpret_cast<const std::byte*>(value.data());
      values.emplace_back(bytes, bytes + value.size());
    }
    return values;
  });
}

Status C10dStore::erase(const std::string& key, Deadline /*deadline*/) {
  return ask([&] { return store_->deleteKey(key); }).status();
}

}  // namespace roundelay::process_group
