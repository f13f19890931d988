#include "csrc/transport/tcp/region_exchange.h"

#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace byteps {
namespace {

class RegionExchangeTest : public ::testing::Test {
 protected:
  RegionExchangeTest()
      : region_(SharedRegion::Make(1 << 16).value()),
        exchange_(region_, &poller_, [this](const Ticket& ticket, int fd) {
          tickets_.push_back(ticket);
          close(fd);
        }) {}

  Poller poller_;
  std::shared_ptr<SharedRegion> region_;
  std::vector<Ticket> tickets_;
  RegionExchange exchange_;
};

TEST_F(RegionExchangeTest, ShowsARegionWithTheTicket) {
  ASSERT_TRUE(exchange_.works());
  ShareOffer offer;
  ASSERT_TRUE(exchange_.MakeOffer(&offer));
  EXPECT_EQ(offer.host, HostId());
  const std::vector<uint8_t> body = Encode(offer);
  const Result<ShareOffer> read = DecodeShareOffer(body.data(), body.size());
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(exchange_.Show(read.value()), 0);
  poller_.Wait(1000);
  ASSERT_EQ(tickets_.size(), 1u);
  EXPECT_EQ(tickets_[0], offer.ticket);
}

TEST_F(RegionExchangeTest, AnotherHostIsShownNothing) {
  ShareOffer offer;
  ASSERT_TRUE(exchange_.MakeOffer(&offer));
  offer.host = "elsewhere";
  EXPECT_EQ(exchange_.Show(offer), EXDEV);
  offer.host = HostId();
  offer.address = std::string("\0nobody is here", 15);
  EXPECT_EQ(exchange_.Show(offer), ECONNREFUSED);
}

TEST_F(RegionExchangeTest, JunkIsDropped) {
  ShareOffer offer;
  ASSERT_TRUE(exchange_.MakeOffer(&offer));
  Socket stranger(socket(AF_UNIX, SOCK_DGRAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, offer.address.data(), offer.address.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                            offer.address.size());
  for (size_t size : {0, 1, 16, 500}) {
    const std::vector<char> junk(size, 'x');
    ASSERT_EQ(sendto(stranger.fd(), junk.data(), size, 0,
                     reinterpret_cast<sockaddr*>(&address), bytes),
              static_cast<ssize_t>(size));
  }
  poller_.Wait(1000);
  EXPECT_TRUE(tickets_.empty());
  ASSERT_EQ(exchange_.Show(offer), 0);
  poller_.Wait(1000);
  EXPECT_EQ(tickets_.size(), 1u);
}

TEST(RegionExchange, WithoutARegionThereIsNone) {
  Poller poller;
  RegionExchange exchange(nullptr, &poller, nullptr);
  EXPECT_FALSE(exchange.works());
}

TEST(ShareOffer, WhatCannotBeReadIsAnError) {
  ShareOffer offer;
  offer.host = "host";
  offer.address = std::string("\0abc", 4);
  const std::vector<uint8_t> body = Encode(offer);
  ASSERT_TRUE(DecodeShareOffer(body.data(), body.size()).ok());
  for (size_t bytes = 0; bytes < body.size(); ++bytes) {
    EXPECT_FALSE(DecodeShareOffer(body.data(), bytes).ok()) << bytes;
  }
  // Only abstract addresses, and only such as fit.
  for (const std::string& address :
       {std::string(), std::string("/tmp/x"), std::string(200, '\0')}) {
    offer.address = address;
    const std::vector<uint8_t> bad = Encode(offer);
    EXPECT_FALSE(DecodeShareOffer(bad.data(), bad.size()).ok());
  }
}

}  // namespace
}  // namespace byteps
