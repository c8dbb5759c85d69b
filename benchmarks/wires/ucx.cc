// The prototype over UCX: tagged messages, errors of peers reported, sleep on the worker's descriptor.
#include <poll.h>
#include <ucp/api/ucp.h>

#include <cstdlib>

#include "common.h"

namespace wires {
namespace {

constexpr double kCloseSeconds = 5;

void require(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  std::fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
  std::exit(1);
}

class UcxWire final : public Wire {
 public:
  UcxWire() {
    ucp_config_t* config = nullptr;
    require(ucp_config_read(nullptr, nullptr, &config), "configuration");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    require(ucp_init(&params, config, &context_), "context");
    ucp_config_release(config);
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    require(ucp_worker_create(context_, &worker, &worker_), "worker");
    require(ucp_worker_get_efd(worker_, &descriptor_), "descriptor");
  }
  UcxWire(const UcxWire&) = delete;
  UcxWire& operator=(const UcxWire&) = delete;
  ~UcxWire() override {
    give_up();
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }

  std::string address() override {
    ucp_address_t* packed = nullptr;
    std::size_t bytes = 0;
    require(ucp_worker_get_address(worker_, &packed, &bytes), "address");
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) {
      constexpr const char* kDigits = "0123456789abcdef";
      const auto byte = reinterpret_cast<const unsigned char*>(packed)[i];
      text += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    ucp_worker_release_address(worker_, packed);
    return text;
  }

  void connect(const std::string& peer) override {
    std::string packed;
    for (std::size_t i = 0; i < peer.size(); i += 2) {
      packed += static_cast<char>(std::stoi(peer.substr(i, 2), nullptr, 16));
    }
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(packed.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {.cb = on_error, .arg = this};
    ucp_ep_h endpoint = nullptr;
    require(ucp_ep_create(worker_, &params, &endpoint), "endpoint");
    endpoints_.push_back(endpoint);
  }
  void accept(const std::string& peer) override { connect(peer); }

  void send(std::size_t connection, const std::byte* data, std::size_t bytes) override {
    auto params = params_of(out_);
    params.cb.send = [](void*, ucs_status_t status, void* transfer) { end(transfer, status); };
    begin(out_, ucp_tag_send_nbx(endpoints_[connection], data, bytes, kTag, &params));
  }
  void receive(std::size_t, std::byte* data, std::size_t bytes) override {
    auto params = params_of(in_);
    params.cb.recv = [](void*, ucs_status_t status, const ucp_tag_recv_info_t*, void* transfer) {
      end(transfer, status);
    };
    begin(in_, ucp_tag_recv_nbx(worker_, data, bytes, kTag, ~ucp_tag_t{0}, &params));
  }
  bool step() override { return ucp_worker_progress(worker_) != 0; }
  void sleep(int milliseconds) override {
    if (ucp_worker_arm(worker_) != UCS_OK) return;
    pollfd what{.fd = descriptor_, .events = POLLIN, .revents = 0};
    ::poll(&what, 1, milliseconds);
  }
  [[nodiscard]] bool sending() const override { return out_.request != nullptr; }
  [[nodiscard]] bool receiving() const override { return in_.request != nullptr; }

  void give_up() override {
    for (Transfer* one : {&out_, &in_}) {
      if (one->request != nullptr) ucp_request_cancel(worker_, one->request);
    }
    std::vector<void*> closing;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    for (ucp_ep_h endpoint : endpoints_) closing.push_back(ucp_ep_close_nbx(endpoint, &params));
    endpoints_.clear();
    for (void* request : closing) {
      if (!UCS_PTR_IS_PTR(request)) continue;
      while (ucp_request_check_status(request) == UCS_INPROGRESS) step();
      ucp_request_free(request);
    }
    const auto begin = Clock::now();
    while ((sending() || receiving()) && seconds_since(begin) < kCloseSeconds) step();
    if (sending() || receiving()) fail("a transfer does not end");
  }

 private:
  static constexpr ucp_tag_t kTag = 1;
  struct Transfer {
    UcxWire* wire;
    void* request = nullptr;
  };

  static ucp_request_param_t params_of(Transfer& transfer) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.user_data = &transfer;
    return params;
  }
  void begin(Transfer& transfer, ucs_status_ptr_t request) {
    if (UCS_PTR_IS_ERR(request)) fail(ucs_status_string(UCS_PTR_STATUS(request)));
    if (UCS_PTR_IS_PTR(request)) transfer.request = request;
  }
  static void end(void* transfer, ucs_status_t status) {
    auto& over = *static_cast<Transfer*>(transfer);
    ucp_request_free(over.request);
    over.request = nullptr;
    if (status != UCS_OK && status != UCS_ERR_CANCELED) over.wire->fail(ucs_status_string(status));
  }
  static void on_error(void* wire, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxWire*>(wire)->fail(ucs_status_string(status));
  }

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<ucp_ep_h> endpoints_;
  Transfer out_{.wire = this}, in_{.wire = this};
};

}  // namespace

std::unique_ptr<Wire> make_wire() { return std::make_unique<UcxWire>(); }

std::string version() { return ucp_get_version_string(); }

}  // namespace wires

int main() { return wires::obey_all(); }
