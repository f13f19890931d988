// A transport that sends nothing: it notes what it is given, and the test says
// when each message has left.
#ifndef BYTEPS_TESTS_CPP_FAKE_TRANSPORT_H_
#define BYTEPS_TESTS_CPP_FAKE_TRANSPORT_H_

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/transport/transport.h"

namespace byteps {

struct SentMessage {
  Peer* peer = nullptr;
  Header header;
  std::vector<uint8_t> payload;
  StatusCallback sent;  // null once called
};

class FakePeer : public Peer {
 public:
  FakePeer(Transport* transport, ProcessName name)
      : Peer(transport, name, ToString(name) + " (fake)") {}
  std::string progress() const override { return ""; }
};

// Not thread-safe.
class FakeTransport : public Transport {
 public:
  Peer* Add(ProcessName name) {
    peers_.push_back(std::make_unique<FakePeer>(this, name));
    return peers_.back().get();
  }
  Status Listen(const std::string&) override { return OkStatus(); }
  Peer* Dial(const ProcessName& name, const std::string&) override {
    return Add(name);
  }
  void Send(Peer* peer, const Header& header, const void* payload,
            StatusCallback sent) override {
    SentMessage message;
    message.peer = peer;
    message.header = header;
    const auto* bytes = static_cast<const uint8_t*>(payload);
    if (bytes != nullptr) {
      message.payload.assign(bytes, bytes + header.payload_bytes);
    }
    message.sent = std::move(sent);
    messages.push_back(std::move(message));
  }
  void ExpectEnd(Peer*) override {}
  void Close(int64_t) override { Complete(OkStatus()); }

  // Every message so far has left, or failed to.
  void Complete(const Status& status) {
    for (size_t i = 0; i < messages.size(); ++i) {
      StatusCallback sent = std::exchange(messages[i].sent, nullptr);
      if (sent) sent(status);
    }
  }
  size_t Count(Kind kind) const {
    size_t count = 0;
    for (const SentMessage& m : messages) count += m.header.kind == kind;
    return count;
  }

  std::vector<SentMessage> messages;

 private:
  std::vector<std::unique_ptr<FakePeer>> peers_;
};

}  // namespace byteps

#endif  // BYTEPS_TESTS_CPP_FAKE_TRANSPORT_H_
