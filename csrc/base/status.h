// Errors as values. Only the Python bindings turn them into exceptions.
#pragma once

#include <cassert>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace roundelay {

// The kind of error. bindings/errors.cc chooses the Python exception by it.
enum class StatusCode : unsigned char {
  kOk,
  kInvalidArgument,  // ValueError: the caller made a mistake; data is untouched and the job continues
  kMismatch,         // MismatchError, a HorovodInternalError: two ranks' calls differ; the job continues
  kAborted,          // HorovodInternalError: a peer failed or left, or a deadline passed
  kUnavailable,      // RuntimeError: something is missing: not initialized, no MPI, no sockets, no memory
  kInternal,         // RuntimeError: a bug in Roundelay
  kIncomplete,       // HorovodInternalError: some rank does not take part; the job continues
};

// OK, or an error with a message. OK allocates nothing; copies share the message.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : error_(std::make_shared<const Error>(Error{code, std::move(message)})) {
    assert(code != StatusCode::kOk);
  }

  static Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
  static Status mismatch(std::string message) { return {StatusCode::kMismatch, std::move(message)}; }
  static Status aborted(std::string message) { return {StatusCode::kAborted, std::move(message)}; }
  static Status unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
  static Status internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

  [[nodiscard]] bool ok() const { return error_ == nullptr; }
  [[nodiscard]] StatusCode code() const { return error_ ? error_->code : StatusCode::kOk; }
  [[nodiscard]] const std::string& message() const {
    static const std::string kNone;
    return error_ ? error_->message : kNone;
  }
  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Error {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;
};

// A value, or the error that explains why there is none. value(), * and -> require ok().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status error) : state_(std::move(error)) {
    assert(!status().ok());
  }  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  [[nodiscard]] Status status() const { return ok() ? Status{} : std::get<Status>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace roundelay

// Returns the error of `expression` to the caller. For functions that return Status or Result.
#define ROUNDELAY_RETURN_IF_ERROR(expression)                                      \
  do {                                                                             \
    if (::roundelay::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
