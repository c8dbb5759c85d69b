#include "runtime/startup/outer_fabric.h"

#include <utility>

#include "collective/tcp/tcp_fabric.h"
#include "collective/tcp/tcp_transport.h"

namespace roundelay::runtime {
namespace {

constexpr const char* kTcp = "tcp";

}  // namespace

std::string OuterFabric::name() const {
  const std::string& wish = config_.fabric;
  if (const std::size_t plus = wish.find('+'); plus != std::string::npos) return wish.substr(plus + 1);
  if (wish != "auto" && wish != "shm") return wish;
  // Gloo cannot be polled, and needs a thread for each message that is under way.
  return backend_->fabric_name() == "c10d" ? kTcp : backend_->fabric_name();
}

Status OuterFabric::check() const {
  if (name() == kTcp || name() == backend_->fabric_name()) return {};
  return Status::unavailable("ROUNDELAY_FABRIC=" + config_.fabric +
                             " does not fit how this job was started: fabrics tcp and " +
                             backend_->fabric_name() + " are what there is beside shared memory");
}

Result<std::string> OuterFabric::open(bool one_host) {
  if (name() != kTcp) return std::string();
  auto listener = connect::TcpListener::listen(config_.interface, one_host);
  if (!listener.ok()) return listener.status();
  listener_.emplace(std::move(listener).value());
  return to_text(listener_->address_bytes());
}

Status OuterFabric::begin(connect::Identity identity, std::span<const Bytes> addresses) {
  if (!listener_) return {};
  // Interfaces that the user did not name may lead nowhere, so that only the first that works is used.
  const collective::tcp::TcpPlane::Options options{.streams = static_cast<std::size_t>(config_.streams),
                                                   .spreads = !config_.interface.empty()};
  auto plane =
      collective::tcp::TcpPlane::create(std::move(identity), std::move(*listener_), addresses, options);
  listener_.reset();
  if (!plane.ok()) return plane.status();
  plane_ = std::move(plane).value();
  return {};
}

Result<std::unique_ptr<collective::Fabric>> OuterFabric::make(const Group& group,
                                                              const collective::Select& select,
                                                              bool crowded) {
  if (name() != kTcp) return backend_->fabric(group, config_, select);
  return collective::make_tcp_fabric(*plane_, group, {.crowded = crowded, .select = select});
}

Result<std::unique_ptr<collective::Transport>> OuterFabric::make_transport(const Group& group) {
  if (!plane_) return Status::unavailable("messages between nodes go over fabric tcp alone");
  auto made = plane_->transport(group);
  if (!made.ok()) return made.status();
  return std::unique_ptr<collective::Transport>(std::move(made).value());
}

}  // namespace roundelay::runtime
