#include "platform/tcp/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <set>

#include "platform/fd.h"
#include "platform/tcp/prefix.h"

namespace roundelay::platform {
namespace {

using Names = std::set<std::string, std::less<>>;

Names split_names(std::string_view list) {
  Names names;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) names.emplace(name);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

bool link_local(const Address& address) {
  if (address.v6) return address.octets[0] == 0xfe && (address.octets[1] & 0xc0) == 0x80;
  return address.octets[0] == 169 && address.octets[1] == 254;
}

// Returns false if the address is neither IPv4 nor IPv6.
bool from_native(const sockaddr* native, Address& address) {
  if (native->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, native, sizeof in);
    std::memcpy(address.octets.data(), &in.sin_addr, 4);
    return true;
  }
  if (native->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, native, sizeof in);
    address.v6 = true;
    std::memcpy(address.octets.data(), &in.sin6_addr, 16);
    return true;
  }
  return false;
}

std::string join(const Names& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// The interfaces that a list names, or whose addresses are in a prefix of the list.
class Wanted {
 public:
  // Errors: kInvalidArgument (an entry is meant as a prefix, but is none).
  static Result<Wanted> parse(std::string_view list) {
    Wanted wanted;
    for (const std::string& entry : split_names(list)) {
      const auto prefix = Prefix::parse(entry);
      if (!prefix && entry.find('/') != std::string::npos) {
        return Status::invalid("\"" + entry +
                               "\" is no prefix of IP addresses; write them like 10.1.0.0/16 or fd00::/8");
      }
      wanted.entries_.push_back({entry, prefix, false});
    }
    return wanted;
  }
  // Looks at an address of an interface that is up. Returns whether the list has it.
  bool take(const std::string& interface, const Address& address) {
    interfaces_.insert(interface);
    const bool usable = !link_local(address);
    if (usable) shown_.insert(interface + " (" + address.to_string() + ")");
    bool chosen = entries_.empty();
    for (Entry& entry : entries_) {
      if (entry.prefix ? !usable || !entry.prefix->contains(address) : entry.text != interface) continue;
      chosen = entry.found = true;
    }
    return chosen;
  }
  // Returns an error if an entry has met no interface. Errors: kInvalidArgument.
  [[nodiscard]] Status check() const {
    for (const Entry& entry : entries_) {
      if (entry.found) continue;
      if (entry.prefix) {
        return Status::invalid("no network interface that is up has an address in " + entry.text +
                               "; there are: " + join(shown_));
      }
      return Status::invalid("network interface \"" + entry.text +
                             "\" is not there or not up; there are: " + join(interfaces_));
    }
    return {};
  }

 private:
  struct Entry {
    std::string text;
    std::optional<Prefix> prefix;
    bool found;
  };
  std::vector<Entry> entries_;
  Names interfaces_, shown_;  // that are up; the latter with their addresses
};

}  // namespace

std::string Address::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(v6 ? AF_INET6 : AF_INET, octets.data(), text.data(), static_cast<socklen_t>(text.size()));
  return text.data();
}

std::string Endpoint::to_string() const {
  const std::string host = address.v6 ? "[" + address.to_string() + "]" : address.to_string();
  return host + ":" + std::to_string(port);
}

socklen_t to_native(const Endpoint& endpoint, sockaddr_storage& storage) {
  storage = {};
  if (endpoint.address.v6) {
    sockaddr_in6 out{};
    out.sin6_family = AF_INET6;
    out.sin6_port = htons(endpoint.port);
    std::memcpy(&out.sin6_addr, endpoint.address.octets.data(), 16);
    std::memcpy(&storage, &out, sizeof out);
    return sizeof out;
  }
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(endpoint.port);
  std::memcpy(&out.sin_addr, endpoint.address.octets.data(), 4);
  std::memcpy(&storage, &out, sizeof out);
  return sizeof out;
}

Result<std::vector<Address>> local_addresses(std::string_view interfaces) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return errno_status("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);

  auto wanted = Wanted::parse(interfaces);
  if (!wanted.ok()) return wanted.status();
  std::vector<Address> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    Address address;
    if (entry->ifa_addr == nullptr || !from_native(entry->ifa_addr, address)) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_RUNNING) == 0) continue;
    address.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    const bool chosen = wanted->take(entry->ifa_name, address);
    if ((chosen || address.loopback) && !link_local(address)) found.push_back(address);
  }
  ROUNDELAY_RETURN_IF_ERROR(wanted->check());
  std::stable_sort(found.begin(), found.end(), [](const Address& a, const Address& b) {
    return std::pair(a.loopback, a.v6) < std::pair(b.loopback, b.v6);
  });
  return found;
}

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string host_identity() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  struct stat network {};
  const bool known = ::stat("/proc/self/ns/net", &network) == 0;
  return std::string(name.data()) + "/" + machine_identity() + "/" +
         (known ? std::to_string(network.st_ino) : "");
}

}  // namespace roundelay::platform
