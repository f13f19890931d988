#include "csrc/transport/tcp/socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

namespace byteps {
namespace {

TEST(SplitAddress, TakesNamesAndBothFamilies) {
  Result<HostPort> name = SplitAddress("gpu-3.example.org:2222");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name.value().host, "gpu-3.example.org");
  EXPECT_EQ(name.value().port, 2222);
  Result<HostPort> v4 = SplitAddress("10.0.0.1:1");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4.value().host, "10.0.0.1");
  EXPECT_EQ(v4.value().port, 1);
  Result<HostPort> v6 = SplitAddress("[fe80::1]:65535");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6.value().host, "fe80::1");
  EXPECT_EQ(v6.value().port, 65535);
}

TEST(SplitAddress, NamesWhatItGotWhenThatIsNoAddress) {
  for (const char* bad :
       {"", ":", "host", "host:", ":2222", "host:0", "host:65536", "host:-1",
        "host:22x", "host:222222", "::1:2222", "[]:1", "host: 22"}) {
    Result<HostPort> result = SplitAddress(bad);
    EXPECT_FALSE(result.ok()) << bad;
    EXPECT_EQ(
        result.status().message(),
        std::string("address must be host:port. Received: \"") + bad + "\"");
  }
}

TEST(Endpoint, PrintsAsItIsWritten) {
  const std::vector<Endpoint> v4 = ParseNumeric({"10.1.2.3", 22});
  ASSERT_EQ(v4.size(), 1u);
  EXPECT_EQ(ToString(v4[0]), "10.1.2.3:22");
  const std::vector<Endpoint> v6 = ParseNumeric({"::1", 22});
  ASSERT_EQ(v6.size(), 1u);
  EXPECT_EQ(ToString(v6[0]), "[::1]:22");
  EXPECT_EQ(HostOf(ParseNumeric({"::ffff:10.0.0.9", 1})[0]), "10.0.0.9");
}

TEST(Endpoint, KnowsLoopback) {
  EXPECT_TRUE(IsLoopback(ParseNumeric({"127.0.1.1", 1})[0]));
  EXPECT_TRUE(IsLoopback(ParseNumeric({"::1", 1})[0]));
  EXPECT_FALSE(IsLoopback(ParseNumeric({"10.127.0.1", 1})[0]));
  EXPECT_FALSE(IsLoopback(ParseNumeric({"fe80::1", 1})[0]));
}

TEST(ParseNumeric, AsksNobody) {
  EXPECT_TRUE(ParseNumeric({"localhost", 22}).empty());
}

struct Connection {
  Socket listener;
  Socket dialled;

  void Connect() {
    ASSERT_EQ(ListenAt(ParseNumeric({"127.0.0.1", 0}).front(), &listener), 0);
    Endpoint here;
    here.bytes = sizeof(sockaddr_storage);
    ASSERT_EQ(getsockname(listener.fd(), here.get(), &here.bytes), 0);
    ASSERT_EQ(StartConnect(here, &dialled), 0);
    pollfd ready{dialled.fd(), POLLOUT, 0};
    ASSERT_EQ(poll(&ready, 1, 10000), 1);
  }
};

std::string CongestionControlOf(const Socket& socket) {
  char name[16] = {};
  socklen_t bytes = sizeof(name) - 1;
  getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name, &bytes);
  return name;
}

TEST(CongestionControl, IsTheSystemsUnlessThatIsBbr) {
  const std::string system =
      CongestionControlOf(Socket(::socket(AF_INET, SOCK_STREAM, 0)));
  ASSERT_FALSE(system.empty());
  const std::string expected = system == "bbr" ? "cubic" : system;
  Connection connection;
  ASSERT_NO_FATAL_FAILURE(connection.Connect());
  EXPECT_EQ(CongestionControlOf(connection.dialled), expected);
  Endpoint from;
  Socket accepted;
  ASSERT_EQ(AcceptFrom(connection.listener, &accepted, &from), 0);
  EXPECT_EQ(CongestionControlOf(accepted), expected);
}

TEST(BoundQueue, LeavesAShortQueueAloneAndKeepsABoundOnce) {
  Connection connection;
  ASSERT_NO_FATAL_FAILURE(connection.Connect());
  const Socket& sender = connection.dialled;
  const auto bytes = [&sender] {
    int value = 0;
    socklen_t size = sizeof(value);
    getsockopt(sender.fd(), SOL_SOCKET, SO_SNDBUF, &value, &size);
    return value;
  };
  const int before = bytes();
  EXPECT_FALSE(BoundQueue(sender, false));
  EXPECT_EQ(bytes(), before);
  EXPECT_TRUE(BoundQueue(sender, true));
  // The kernel doubles what it is asked for.
  EXPECT_LE(bytes(), 2 * (200 << 10));
}

TEST(ErrorText, FitsIntoASentence) {
  EXPECT_EQ(ErrorText(ECONNREFUSED), "connection refused");
  EXPECT_EQ(ErrorText(ENOBUFS), "no buffer space available");
}

}  // namespace
}  // namespace byteps
