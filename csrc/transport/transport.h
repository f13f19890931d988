// Moves messages - a Header and at most one contiguous payload - between the
// processes of one job.
//
// The contract, which tests/cpp/transport_conformance holds against every
// implementation:
//  1 Messages to a peer arrive whole and in the order of Send.
//  2 Every Send calls `sent` exactly once, with an error if the peer is lost or
//    the transport closed; the payload is not touched afterwards. Never under a
//    lock; maybe before Send returns.
//  3 Lost comes exactly once per peer that Joined (or was dialed), after all
//    its sends have completed: within milliseconds of the peer's death, within
//    the failure timeout of silence.
//  4 A lost peer is never revived; another Dial makes another Peer.
//  5 Land says where a payload goes before it is read, and may refuse; sizes
//    are bounded before anything is allocated.
//  6 An idle transport uses no CPU beyond a ping now and then.
//  7 Any thread may call Send; it never blocks. The caller bounds what is in
//    flight.
//  8 A forked child may not use it: Send there completes with an error.
#ifndef BYTEPS_TRANSPORT_TRANSPORT_H_
#define BYTEPS_TRANSPORT_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "csrc/base/config.h"
#include "csrc/base/status.h"
#include "csrc/memory/buffer_pool.h"
#include "csrc/wire/header.h"

namespace byteps {

class Transport;

// One connected process. Lives as long as its transport, also after it is lost.
// The transport's implementation derives from it.
class Peer {
 public:
  virtual ~Peer() = default;
  Transport* transport() const { return transport_; }
  const ProcessName& name() const { return name_; }
  // "worker 1 (10.0.0.2:2222)"
  const std::string& label() const { return label_; }
  // Of a dialed peer that has not joined: what the last attempt met, such as
  // "connection refused"; else empty. Thread-safe.
  virtual std::string progress() const = 0;

 protected:
  Peer(Transport* transport, ProcessName name, std::string label)
      : transport_(transport), name_(name), label_(std::move(label)) {}
  Transport* const transport_;
  ProcessName name_;
  std::string label_;
};

// Where a payload goes. `data` null with `accept` true is right for empty
// payloads and means "read and discard" for others.
struct Landing {
  bool accept = true;
  void* data = nullptr;
  // Handed back to Arrived, so that the receiver finds its own bookkeeping
  // without a map; the transport does not look at it.
  void* context = nullptr;
  // In: a payload in shared memory need not be copied to `data`. Out, if that
  // is so: the payload, read only, which Arrived may keep (move away). The
  // sender gets its memory back with the buffer's end, which may come after
  // the transport's.
  bool keeps = false;
  Buffer* kept = nullptr;
};

// What the transport tells its user. All calls come one at a time from the
// transport's thread and must not block.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Authenticated, both ways open.
  virtual void Joined(Peer* peer) = 0;
  // accept=false drops the peer with an error that says it broke the protocol.
  virtual Landing Land(Peer* peer, const Header& header) = 0;
  virtual void Arrived(Peer* peer, const Header& header,
                       const Landing& landing) = 0;
  // The payload that was to arrive at `landing` never will (the peer is lost
  // midway). Called before Lost.
  virtual void Abandoned(Peer* peer, const Header& header,
                         const Landing& landing) = 0;
  // `why` is a sentence: what happened and the last thing heard.
  virtual void Lost(Peer* peer, const Status& why) = 0;
  // A dialed process refuses us for good (wrong token, other version, other
  // cluster, name already taken), or the address is not host:port. Comes
  // instead of Joined and Lost. A host whose name does not resolve may only be
  // late: that is retried, see Peer::progress.
  virtual void Refused(Peer* peer, const Status& why) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;  // closes and joins

  // Binds this process's own address and accepts peers from now on. An error
  // names the address and the reason ("Address already in use").
  virtual Status Listen(const std::string& address) = 0;

  // Connects to `name` at `address`, again and again until it answers; returns
  // at once. Joined or Refused follows; neither comes while nobody answers, so
  // the caller keeps the start deadline. Owned by the transport.
  virtual Peer* Dial(const ProcessName& name, const std::string& address) = 0;

  // header.payload_bytes bytes at `payload` must stay until `sent`.
  virtual void Send(Peer* peer, const Header& header, const void* payload,
                    StatusCallback sent) = 0;

  // The peer said goodbye or is going to: its end of stream is no loss. After
  // this Lost still comes, with Cancelled as its code.
  virtual void ExpectEnd(Peer* peer) = 0;

  // Stops accepting and dialing, waits up to `timeout_ms` until everything
  // that was sent has left this process and the peers have read it, then
  // closes all connections and completes what is left with Cancelled; Lost
  // comes for every peer that is still there. Any thread but the transport's;
  // idempotent. Nothing is called after it returns.
  virtual void Close(int64_t timeout_ms) = 0;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TRANSPORT_H_
