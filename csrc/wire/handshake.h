// How two processes convince each other that they are of one job and speak one
// language, before either believes another byte. A state machine without I/O,
// clock or randomness.
//
//   dialer                                  acceptor
//     Hello(who, cluster, nonce)   ──────►    compares
//       compares                   ◄──────  Hello(who, cluster, nonce)
//     Proof(HMAC of both hellos)   ──────►    checks
//       checks                     ◄──────  Admit(HMAC of both hellos)
//
// Either may answer with Refusal(text) instead, so that both ends can print the
// same sentence. Every frame starts with a magic number, the protocol version,
// its type and its length; this and the refusal never change between versions.
//
// The token itself is never sent. Nothing is encrypted.
#ifndef BYTEPS_WIRE_HANDSHAKE_H_
#define BYTEPS_WIRE_HANDSHAKE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/wire/sha256.h"

namespace byteps {

constexpr uint16_t kProtocolVersion = 1;

using Nonce = std::array<uint8_t, 32>;

// What a process says of itself.
struct Hello {
  uint16_t version = kProtocolVersion;
  ProcessName self;
  ProcessName wanted;  // whom the dialer means to reach
  uint32_t num_workers = 0;
  uint32_t num_servers = 0;  // dedicated ones
  std::string cluster_digest;
  Nonce nonce{};
};

Hello MakeHello(const Config& config, const ProcessName& wanted,
                const Nonce& nonce);

// Why `acceptor` does not let `dialer` in, naming both; empty if it does. The
// token is not looked at.
std::string Objection(const Hello& acceptor, const Hello& dialer);

// One connection's greeting, at either end. Owned and called by one thread.
// Never fails on what comes in: the state says what became of it.
class Handshake {
 public:
  // No frame of any version is longer.
  static constexpr size_t kMaxFrameBytes = 512;

  enum class State {
    kWaiting,  // for bytes
    kProved,   // acceptor only: the dialer is genuine; Admit or Refuse it
    kDone,     // both are
    kRefused,  // by either; see reason() and by_us()
    kBroken,   // the other end does not speak this protocol at all
  };

  static Handshake Dialer(const Config& config, const ProcessName& wanted,
                          const Nonce& nonce);
  static Handshake Acceptor(const Config& config, const Nonce& nonce);

  // Takes the frames that `data` holds completely, but none after the one that
  // ends kWaiting; returns how many bytes they were.
  size_t Receive(const uint8_t* data, size_t bytes);
  // What is to be sent now; empties itself.
  std::vector<uint8_t> TakeOutput();

  void Admit();
  void Refuse(const std::string& reason);

  State state() const { return state_; }
  // A whole hello of this protocol came, so this is no stranger.
  bool heard_hello() const { return heard_hello_; }
  // Known once heard_hello().
  const ProcessName& peer() const { return theirs_.self; }
  const std::string& reason() const { return reason_; }
  bool by_us() const { return by_us_; }

 private:
  Handshake(const Config& config, bool dialing, const ProcessName& wanted,
            const Nonce& nonce);

  enum class Frame : uint16_t {
    kHello = 1,
    kProof = 2,
    kAdmit = 3,
    kRefusal = 4,
  };
  void Send(Frame type, const std::vector<uint8_t>& body);
  void Take(uint16_t version, Frame type, const uint8_t* body, size_t bytes);
  void TakeHello(uint16_t version, const uint8_t* body, size_t bytes);
  void Break(const std::string& reason);
  Digest Proof(bool of_dialer) const;

  std::string token_;
  bool dialing_;
  Hello ours_;
  Hello theirs_;
  // The bodies as they went over the wire: the proofs cover them.
  std::vector<uint8_t> our_hello_;
  std::vector<uint8_t> their_hello_;
  bool heard_hello_ = false;
  State state_ = State::kWaiting;
  std::string reason_;
  bool by_us_ = false;
  std::vector<uint8_t> output_;
};

}  // namespace byteps

#endif  // BYTEPS_WIRE_HANDSHAKE_H_
