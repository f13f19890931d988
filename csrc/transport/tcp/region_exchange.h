// Passes shared regions between the processes of a host: a datagram socket with
// an abstract address, which exists in this network namespace while the process
// lives and nowhere in a file system.
//
// Whom to show one's region and where is said over the authenticated
// connection, with a ticket that nobody else can know. Anybody may send to the
// socket; what is from another user or has no valid ticket is dropped.
//
// Owned by the transport, used on its thread.
#ifndef BYTEPS_TRANSPORT_TCP_REGION_EXCHANGE_H_
#define BYTEPS_TRANSPORT_TCP_REGION_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/memory/shared_region.h"
#include "csrc/transport/tcp/poller.h"
#include "csrc/transport/tcp/socket.h"

namespace byteps {

using Ticket = std::array<uint8_t, 16>;

// "Show me your region": the body of a kShare.
struct ShareOffer {
  std::string host;     // must be the receiver's own
  std::string address;  // abstract, with its leading zero
  Ticket ticket{};
};
std::vector<uint8_t> Encode(const ShareOffer& offer);
Result<ShareOffer> DecodeShareOffer(const uint8_t* body, size_t bytes);

// Equal for processes that can exchange regions: boot, network namespace, user.
// Empty if that cannot be known here.
std::string HostId();

class RegionExchange final : public Source {
 public:
  // Gets what was shown with a ticket and takes the descriptor.
  using Taker = std::function<void(const Ticket& ticket, int fd)>;

  // `region` null: does nothing.
  RegionExchange(std::shared_ptr<SharedRegion> region, Poller* poller,
                 Taker take);

  bool works() const { return socket_.valid(); }
  SharedRegion* region() const { return region_.get(); }
  // An offer with a fresh ticket; false if there are no random numbers.
  bool MakeOffer(ShareOffer* offer) const;
  // Shows the region to who made the offer. 0 or errno.
  int Show(const ShareOffer& offer) const;

  void Ready(uint32_t events) override;

 private:
  const std::shared_ptr<SharedRegion> region_;
  const Taker take_;
  std::string host_;
  std::string address_;
  Socket socket_;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_REGION_EXCHANGE_H_
