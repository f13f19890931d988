#include "csrc/wire/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "csrc/wire/bytes.h"

namespace byteps {
namespace {

using State = Handshake::State;

Config MakeConfig(uint32_t index) {
  Config config;
  config.self = {Role::kWorker, index};
  config.workers = {"a:1", "b:2"};
  config.servers = {"c:3"};
  config.job_token = "secret";
  config.cluster_digest = "d1";
  return config;
}

Config ServerConfig() {
  Config config = MakeConfig(0);
  config.self = {Role::kServer, 0};
  return config;
}

Nonce Filled(uint8_t value) {
  Nonce nonce;
  nonce.fill(value);
  return nonce;
}

std::string Hex(const std::vector<uint8_t>& bytes) {
  std::string out;
  char two[3];
  for (const uint8_t byte : bytes) {
    std::snprintf(two, sizeof(two), "%02x", byte);
    out += two;
  }
  return out;
}

// Carries bytes between the two until neither has any; the acceptor admits
// whoever has proved itself.
struct Pair {
  Pair(const Config& dialer_config, const Config& acceptor_config,
       const ProcessName& wanted = {Role::kServer, 0})
      : dialer(Handshake::Dialer(dialer_config, wanted, Filled(1))),
        acceptor(Handshake::Acceptor(acceptor_config, Filled(2))) {}

  void Run() {
    for (;;) {
      const std::vector<uint8_t> there = dialer.TakeOutput();
      EXPECT_EQ(acceptor.Receive(there.data(), there.size()), there.size());
      if (acceptor.state() == State::kProved) acceptor.Admit();
      const std::vector<uint8_t> back = acceptor.TakeOutput();
      if (back.empty()) break;
      EXPECT_EQ(dialer.Receive(back.data(), back.size()), back.size());
      if (there.empty() && back.empty()) break;
    }
  }

  Handshake dialer, acceptor;
};

TEST(Handshake, TwoOfOneJobAgree) {
  Pair pair(MakeConfig(1), ServerConfig());
  pair.Run();
  EXPECT_EQ(pair.dialer.state(), State::kDone);
  EXPECT_EQ(pair.acceptor.state(), State::kDone);
  EXPECT_EQ(pair.acceptor.peer(), (ProcessName{Role::kWorker, 1}));
  EXPECT_EQ(pair.dialer.peer(), (ProcessName{Role::kServer, 0}));
}

// The bytes of version 1, the proofs computed by Python's hmac. They may change
// with the version only.
TEST(Handshake, GoldenBytes) {
  Pair pair(MakeConfig(1), ServerConfig());
  const std::vector<uint8_t> hello = pair.dialer.TakeOutput();
  std::string nonce1, nonce2;
  for (int i = 0; i < 32; ++i) nonce1 += "01";
  for (int i = 0; i < 32; ++i) nonce2 += "02";
  EXPECT_EQ(Hex(hello),
            "7466627974657073"  // tfbyteps
            "0100"              // version
            "0100"              // hello
            "38000000"          // 56 bytes
            "0101000000"        // worker 1
            "0000000000"        // looks for server 0
            "02000000"          // 2 workers
            "01000000" +        // 1 server
                nonce1 +
                "02000000"  // digest
                "6431");
  pair.acceptor.Receive(hello.data(), hello.size());
  const std::vector<uint8_t> answer = pair.acceptor.TakeOutput();
  EXPECT_EQ(Hex(answer),
            "74666279746570730100010038000000"
            "0000000000"
            "0000000000"
            "0200000001000000" +
                nonce2 + "020000006431");
  pair.dialer.Receive(answer.data(), answer.size());
  const std::vector<uint8_t> proof = pair.dialer.TakeOutput();
  ASSERT_EQ(proof.size(), 48u);
  EXPECT_EQ(Hex({proof.begin(), proof.begin() + 16}),
            "74666279746570730100020020000000");
  EXPECT_EQ(Hex({proof.begin() + 16, proof.end()}),
            "fed04703e39ad73096c90f750205331b"
            "5f953f8c4fe5d28886c6d4927cb8fea9");
  pair.acceptor.Receive(proof.data(), proof.size());
  ASSERT_EQ(pair.acceptor.state(), State::kProved);
  pair.acceptor.Admit();
  const std::vector<uint8_t> admit = pair.acceptor.TakeOutput();
  ASSERT_EQ(admit.size(), 48u);
  EXPECT_EQ(Hex({admit.begin(), admit.begin() + 16}),
            "74666279746570730100030020000000");
  EXPECT_EQ(Hex({admit.begin() + 16, admit.end()}),
            "6c63124861b41661d337abd032d31cfc"
            "2f2b3c8294db88419caf88dc21cb4377");
  pair.dialer.Receive(admit.data(), admit.size());
  EXPECT_EQ(pair.dialer.state(), State::kDone);
}

TEST(Handshake, AnotherTokenIsRefusedWithOneSentence) {
  Config other = MakeConfig(1);
  other.job_token = "another";
  Pair pair(other, ServerConfig());
  pair.Run();
  EXPECT_EQ(pair.acceptor.state(), State::kRefused);
  EXPECT_TRUE(pair.acceptor.by_us());
  EXPECT_EQ(pair.dialer.state(), State::kRefused);
  EXPECT_FALSE(pair.dialer.by_us());
  EXPECT_EQ(pair.dialer.reason(),
            "worker 1 carries another job's token than server 0");
  EXPECT_EQ(pair.acceptor.reason(), pair.dialer.reason());
}

TEST(Handshake, AnAcceptorWithoutTheTokenIsFoundOut) {
  // It lets the dialer in unseen, but cannot prove itself.
  Config liar = ServerConfig();
  liar.job_token = "guess";
  Pair pair(MakeConfig(1), liar);
  std::vector<uint8_t> bytes = pair.dialer.TakeOutput();
  pair.acceptor.Receive(bytes.data(), bytes.size());
  bytes = pair.acceptor.TakeOutput();
  pair.dialer.Receive(bytes.data(), bytes.size());
  pair.acceptor.Admit();
  bytes = pair.acceptor.TakeOutput();
  pair.dialer.Receive(bytes.data(), bytes.size());
  EXPECT_EQ(pair.dialer.state(), State::kRefused);
  EXPECT_TRUE(pair.dialer.by_us());
}

TEST(Handshake, AProofCannotBePlayedBack) {
  Pair first(MakeConfig(1), ServerConfig());
  std::vector<uint8_t> hello = first.dialer.TakeOutput();
  first.acceptor.Receive(hello.data(), hello.size());
  std::vector<uint8_t> answer = first.acceptor.TakeOutput();
  first.dialer.Receive(answer.data(), answer.size());
  const std::vector<uint8_t> proof = first.dialer.TakeOutput();
  // The same hello and proof to an acceptor with another nonce.
  Handshake second = Handshake::Acceptor(ServerConfig(), Filled(3));
  second.Receive(hello.data(), hello.size());
  second.Receive(proof.data(), proof.size());
  EXPECT_EQ(second.state(), State::kRefused);
  // The dialer's own proof back at it.
  std::vector<uint8_t> mirrored = proof;
  mirrored[10] = 3;  // as an Admit
  first.dialer.Receive(mirrored.data(), mirrored.size());
  EXPECT_EQ(first.dialer.state(), State::kRefused);
}

TEST(Handshake, DifferentClustersAreExplained) {
  Config other = MakeConfig(1);
  other.workers.push_back("e:5");
  Pair pair(other, ServerConfig());
  pair.Run();
  EXPECT_EQ(pair.dialer.reason(),
            "worker 1 describes a cluster of 3 workers and 1 dedicated "
            "server, server 0 one of 2 workers and 1 dedicated server");
  other = MakeConfig(1);
  other.cluster_digest = "d2";
  Pair same_size(other, ServerConfig());
  same_size.Run();
  EXPECT_EQ(same_size.dialer.reason(),
            "worker 1 and server 0 describe different clusters, both of 2 "
            "workers and 1 dedicated server: the addresses, their order, "
            "bandwidths or colocated_servers differ between the two");
}

TEST(Handshake, NamesThatDoNotFitAreExplained) {
  Pair outside(MakeConfig(9), ServerConfig());
  outside.Run();
  EXPECT_EQ(outside.dialer.reason(),
            "worker 9 is not in the cluster of 2 workers and 1 dedicated "
            "server");
  Pair wrong(MakeConfig(1), ServerConfig(), {Role::kWorker, 0});
  wrong.Run();
  EXPECT_EQ(wrong.dialer.reason(),
            "worker 1 looks for worker 0, but this address is server 0's");
  Pair twins(MakeConfig(1), MakeConfig(1), {Role::kWorker, 1});
  twins.Run();
  EXPECT_EQ(twins.dialer.reason(), "two processes call themselves worker 1");
}

TEST(Handshake, AnyDigestFits) {
  Config a = MakeConfig(1), b = ServerConfig();
  a.cluster_digest = b.cluster_digest = std::string(100000, 'x');
  Pair pair(a, b);
  pair.Run();
  EXPECT_EQ(pair.dialer.state(), State::kDone);
  b.cluster_digest += "y";
  Pair differ(a, b);
  differ.Run();
  EXPECT_EQ(differ.dialer.state(), State::kRefused);
}

TEST(Handshake, TakesBytesOneByOneAndLeavesWhatFollows) {
  Pair pair(MakeConfig(1), ServerConfig());
  const std::vector<uint8_t> hello = pair.dialer.TakeOutput();
  std::vector<uint8_t> buffer;
  for (const uint8_t byte : hello) {
    buffer.push_back(byte);
    const size_t used = pair.acceptor.Receive(buffer.data(), buffer.size());
    EXPECT_EQ(used, buffer.size() == hello.size() ? hello.size() : 0);
    if (used > 0) buffer.clear();
  }
  std::vector<uint8_t> answer = pair.acceptor.TakeOutput();
  pair.dialer.Receive(answer.data(), answer.size());
  std::vector<uint8_t> proof = pair.dialer.TakeOutput();
  const size_t bytes = proof.size();
  proof.resize(bytes + 100, 0xee);  // messages may come in the same read
  EXPECT_EQ(pair.acceptor.Receive(proof.data(), proof.size()), bytes);
  EXPECT_EQ(pair.acceptor.state(), State::kProved);
}

TEST(Handshake, StrangersAreKnownByTheirFirstByte) {
  Handshake acceptor = Handshake::Acceptor(ServerConfig(), Filled(2));
  const uint8_t byte = 'G';
  acceptor.Receive(&byte, 1);
  EXPECT_EQ(acceptor.state(), State::kBroken);
  EXPECT_TRUE(acceptor.TakeOutput().empty());
}

TEST(Handshake, NoFlippedBitIsLetIn) {
  for (size_t bit = 0; bit < 8 * 150; ++bit) {
    Pair pair(MakeConfig(1), ServerConfig());
    std::vector<uint8_t> hello = pair.dialer.TakeOutput();
    if (bit / 8 < hello.size()) hello[bit / 8] ^= 1u << (bit % 8);
    pair.acceptor.Receive(hello.data(), hello.size());
    std::vector<uint8_t> answer = pair.acceptor.TakeOutput();
    pair.dialer.Receive(answer.data(), answer.size());
    std::vector<uint8_t> proof = pair.dialer.TakeOutput();
    const size_t at = bit / 8 - std::min(bit / 8, hello.size());
    if (bit / 8 >= hello.size()) {
      if (at >= proof.size()) break;
      proof[at] ^= 1u << (bit % 8);
    }
    pair.acceptor.Receive(proof.data(), proof.size());
    EXPECT_NE(pair.acceptor.state(), State::kProved) << "bit " << bit;
  }
}

TEST(Handshake, ARefusalIsReadableAcrossVersionsAndCleanForALog) {
  Handshake refuser = Handshake::Acceptor(ServerConfig(), Filled(2));
  refuser.Refuse("because\n\x1b[2J" + std::string(1000, 'z'));
  std::vector<uint8_t> frame = refuser.TakeOutput();
  EXPECT_LE(frame.size(), Handshake::kMaxFrameBytes);
  frame[8] = 77;  // the version
  Handshake dialer =
      Handshake::Dialer(MakeConfig(1), {Role::kServer, 0}, Filled(1));
  dialer.Receive(frame.data(), frame.size());
  EXPECT_EQ(dialer.state(), State::kRefused);
  EXPECT_EQ(dialer.reason().substr(0, 16), "because??[2Jzzzz");
  EXPECT_EQ(dialer.reason().size(), 400u);
}

TEST(Handshake, BothVersionsAreNamed) {
  Pair pair(MakeConfig(1), ServerConfig());
  std::vector<uint8_t> hello = pair.dialer.TakeOutput();
  hello[8] = 2;
  pair.acceptor.Receive(hello.data(), hello.size());
  const std::vector<uint8_t> answer = pair.acceptor.TakeOutput();
  pair.dialer.Receive(answer.data(), answer.size());
  EXPECT_EQ(pair.dialer.reason(),
            "the process that dialed runs a tf_byteps with protocol version "
            "2, server 0 one with version 1");
}

TEST(Objection, ComparesVersionsFirst) {
  Hello acceptor = MakeHello(ServerConfig(), {Role::kServer, 0}, Nonce{});
  Hello dialer = MakeHello(MakeConfig(1), {Role::kServer, 0}, Nonce{});
  EXPECT_EQ(Objection(acceptor, dialer), "");
  dialer.version = 3;
  dialer.num_workers = 9;
  EXPECT_EQ(Objection(acceptor, dialer),
            "worker 1 runs a tf_byteps with protocol version 3, server 0 one "
            "with version 1");
}

}  // namespace
}  // namespace byteps
