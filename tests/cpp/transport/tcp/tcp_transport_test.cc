// What only TCP has: strangers, other versions, processes that die or stop,
// names and addresses. The common contract is tested in
// tests/cpp/transport_conformance.
#include "csrc/transport/tcp/tcp_transport.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/transport/tcp/poller.h"
#include "csrc/transport/tcp/region_exchange.h"
#include "csrc/transport/tcp/socket.h"
#include "csrc/wire/bytes.h"
#include "csrc/wire/handshake.h"
#include "tests/cpp/transport_conformance/harness.h"

extern char** environ;

namespace byteps {
namespace testing {
namespace {

constexpr char kChildVariable[] = "TF_BYTEPS_TEST_TCP_CHILD";

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

int64_t CpuMs() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

Endpoint LocalEndpoint(uint16_t port) {
  return ParseNumeric({"127.0.0.1", port}).front();
}

// A blocking client without any manners.
class Stranger {
 public:
  explicit Stranger(uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Endpoint to = LocalEndpoint(port);
    EXPECT_EQ(connect(socket_.fd(), to.get(), to.bytes), 0) << errno;
    // Every Say is a segment of its own, and none waits in this end's kernel.
    PrepareStream(socket_, kPatienceMs);
  }

  void Say(const std::vector<uint8_t>& bytes) {
    size_t at = 0;
    while (at < bytes.size()) {
      const ssize_t sent = send(socket_.fd(), bytes.data() + at,
                                bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;  // dropped already
      at += static_cast<size_t>(sent);
    }
  }
  void Say(const std::string& text) {
    Say(std::vector<uint8_t>(text.begin(), text.end()));
  }
  void EndOfInput() { shutdown(socket_.fd(), SHUT_WR); }

  // At most `bytes`; empty at the end of the stream or after `ms`.
  std::vector<uint8_t> Hear(size_t bytes, int64_t ms) {
    pollfd wait{socket_.fd(), POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(ms)) <= 0) return {};
    std::vector<uint8_t> out(bytes);
    const ssize_t got = recv(socket_.fd(), out.data(), out.size(), 0);
    out.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return out;
  }

  // Exactly `bytes`; fewer at the end of the stream or if nothing comes.
  std::vector<uint8_t> HearAll(size_t bytes) {
    while (heard_.size() < bytes) {
      const std::vector<uint8_t> more = Hear(1024, kPatienceMs);
      if (more.empty()) break;
      heard_.insert(heard_.end(), more.begin(), more.end());
    }
    const auto end =
        heard_.begin() + static_cast<ptrdiff_t>(std::min(bytes, heard_.size()));
    std::vector<uint8_t> out(heard_.begin(), end);
    heard_.erase(heard_.begin(), end);
    return out;
  }

  // The next message that is no ping; `body` gets what follows its header.
  Header HearMessage(std::vector<uint8_t>* body) {
    for (;;) {
      const std::vector<uint8_t> bytes = HearAll(Header::kBytes);
      if (bytes.size() < Header::kBytes) {
        ADD_FAILURE() << "the stream ended";
        return Header();
      }
      const Header header = DecodeHeader(bytes.data()).value();
      if (header.kind == Kind::kPing) continue;
      body->clear();
      if (!header.in_place) *body = HearAll(header.payload_bytes);
      return header;
    }
  }

  bool IsDroppedWithin(int64_t ms) {
    const int64_t deadline = NowMs() + ms;
    for (;;) {
      pollfd wait{socket_.fd(), POLLIN, 0};
      const int64_t left = std::max<int64_t>(0, deadline - NowMs());
      if (poll(&wait, 1, static_cast<int>(left)) <= 0) return false;
      uint8_t bytes[4096];
      if (recv(socket_.fd(), bytes, sizeof(bytes), 0) <= 0) return true;
    }
  }

  // Completes the greeting as `config.self`. False if it is not let in.
  bool Greet(const Config& config, const ProcessName& wanted) {
    Nonce nonce{};
    nonce[0] = 42;
    Handshake handshake = Handshake::Dialer(config, wanted, nonce);
    for (;;) {
      Say(handshake.TakeOutput());
      if (handshake.state() != Handshake::State::kWaiting) break;
      const std::vector<uint8_t> more = Hear(1024, kPatienceMs);
      if (more.empty()) return false;
      heard_.insert(heard_.end(), more.begin(), more.end());
      heard_.erase(heard_.begin(),
                   heard_.begin() + static_cast<ptrdiff_t>(handshake.Receive(
                                        heard_.data(), heard_.size())));
    }
    reason_ = handshake.reason();
    return handshake.state() == Handshake::State::kDone;
  }
  const std::string& reason() const { return reason_; }

 private:
  Socket socket_;
  std::string reason_;
  std::vector<uint8_t> heard_;  // and not looked at yet
};

std::vector<uint8_t> Encoded(const Header& header) {
  std::vector<uint8_t> out(Header::kBytes);
  Encode(header, out.data());
  return out;
}

std::vector<uint8_t> Frame(uint16_t version, uint16_t type,
                           const std::vector<uint8_t>& body) {
  ByteWriter writer;
  const std::string magic = "tfbyteps";
  writer.Raw(reinterpret_cast<const uint8_t*>(magic.data()), magic.size());
  writer.Number(version);
  writer.Number(type);
  writer.Number(static_cast<uint32_t>(body.size()));
  writer.Raw(body.data(), body.size());
  return writer.Take();
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

struct Process {
  explicit Process(const Config& config,
                   std::shared_ptr<SharedRegion> region = nullptr)
      : config(config),
        transport(MakeTcpTransport(config, &receiver, std::move(region))) {}
  ~Process() {
    transport->Close(0);
    receiver.Seal();
  }
  Status Listen() { return transport->Listen(config.address(config.self)); }
  Peer* Dial(uint32_t worker) {
    return transport->Dial({Role::kWorker, worker}, config.workers[worker]);
  }

  Config config;
  RecordingReceiver receiver;
  std::unique_ptr<Transport> transport;
};

// A worker 1 in a process of its own, which dials worker 0 and stays until it
// is killed.
class Child {
 public:
  // `task`: "idle", "busy".
  Child(const Config& parent, const std::string& task) {
    const std::string value = task + " " + parent.workers[0] + " " +
                              parent.workers[1] + " " +
                              std::to_string(parent.failure_timeout_ms);
    setenv(kChildVariable, value.c_str(), 1);
    char self[] = "/proc/self/exe";
    char filter[] = "--gtest_filter=TcpTransportChild.DISABLED_Run";
    char disabled[] = "--gtest_also_run_disabled_tests";
    char* arguments[] = {self, filter, disabled, nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1, 0);
    EXPECT_EQ(posix_spawn(&pid_, self, &actions, nullptr, arguments, environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    unsetenv(kChildVariable);
  }
  ~Child() {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) { kill(pid_, signal); }

 private:
  pid_t pid_ = -1;
};

TEST(TcpTransportChild, DISABLED_Run) {
  const char* value = getenv(kChildVariable);
  if (value == nullptr) return;
  char task[16], worker0[64], worker1[64];
  long timeout = 0;
  ASSERT_EQ(
      sscanf(value, "%15s %63s %63s %ld", task, worker0, worker1, &timeout), 4);
  Config config = WorkerConfig({worker0, worker1, "127.0.0.1:1"}, 1);
  config.failure_timeout_ms = timeout;
  Process process(config);
  process.Dial(0);
  Peer* peer = process.receiver.WaitJoined({Role::kWorker, 0});
  ASSERT_NE(peer, nullptr);
  const std::vector<uint8_t> payload = PatternOf(1, 0, 4 << 20);
  Completions sent;
  if (std::string(task) == "busy") {
    for (int i = 0; i < 100000; ++i) {
      process.transport->Send(peer, DataHeader(i, payload.size()),
                              payload.data(), sent.Next());
    }
  } else {
    process.transport->Send(peer, DataHeader(7, 0), nullptr, sent.Next());
  }
  Status why;
  process.receiver.WaitLost(peer, &why);
}

class TcpTransport : public ::testing::Test {
 protected:
  TcpTransport() {
    for (int i = 0; i < 3; ++i) {
      ports_.push_back(FreePort());
      addresses_.push_back("127.0.0.1:" + std::to_string(ports_.back()));
    }
  }
  Config ConfigOf(uint32_t index) { return WorkerConfig(addresses_, index); }

  // Two processes that have joined over a real connection.
  void ExpectThatTheJobGoesOn(Process* acceptor) {
    Process dialer(ConfigOf(1));
    dialer.Dial(0);
    ASSERT_NE(dialer.receiver.WaitJoined({Role::kWorker, 0}), nullptr);
    Peer* peer = acceptor->receiver.WaitJoined({Role::kWorker, 1});
    ASSERT_NE(peer, nullptr);
    acceptor->transport->ExpectEnd(peer);
    dialer.transport->Close(5000);
    Status why;
    ASSERT_TRUE(acceptor->receiver.WaitLost(peer, &why));
    EXPECT_EQ(why.code(), Code::kCancelled);
  }

  std::vector<uint16_t> ports_;
  std::vector<std::string> addresses_;
};

// ---- Death

TEST_F(TcpTransport, AKilledPeerIsLostWithinASecond) {
  for (const char* task : {"idle", "busy"}) {
    Config config = ConfigOf(0);
    Process process(config);
    process.receiver.keep_messages = false;
    ASSERT_TRUE(process.Listen().ok());
    Child child(config, task);
    Peer* peer = process.receiver.WaitJoined({Role::kWorker, 1});
    ASSERT_NE(peer, nullptr);
    ASSERT_TRUE(process.receiver.WaitMessages(1));
    const int64_t begin = NowMs();
    child.Signal(SIGKILL);
    Status why;
    ASSERT_TRUE(process.receiver.WaitLost(peer, &why));
    EXPECT_LT(NowMs() - begin, 1000);
    EXPECT_EQ(why.code(), Code::kUnavailable);
    EXPECT_NE(why.message().find("(its process ended); the last thing heard "
                                 "was a push of key 0123456789abcdef/"),
              std::string::npos)
        << why.message();
  }
}

TEST_F(TcpTransport, ADyingReaderFailsTheSends) {
  Config config = ConfigOf(0);
  Process process(config);
  ASSERT_TRUE(process.Listen().ok());
  Child child(config, "idle");
  Peer* peer = process.receiver.WaitJoined({Role::kWorker, 1});
  ASSERT_NE(peer, nullptr);
  ASSERT_TRUE(process.receiver.WaitMessages(1));
  const std::vector<uint8_t> payload = PatternOf(0, 0, 4 << 20);
  Completions sent;
  child.Signal(SIGSTOP);
  for (int i = 0; i < 10; ++i) {
    process.transport->Send(peer, DataHeader(i, payload.size()), payload.data(),
                            sent.Next());
  }
  EXPECT_LT(sent.ok(), 10u);
  const int64_t begin = NowMs();
  child.Signal(SIGKILL);
  ASSERT_TRUE(sent.WaitAll());
  EXPECT_LT(NowMs() - begin, 1000);
  EXPECT_GT(sent.failed(), 0u);
  EXPECT_EQ(sent.last_error().code(), Code::kUnavailable);
}

TEST_F(TcpTransport, AStoppedPeerIsLostAfterTheTimeout) {
  for (const char* task : {"idle", "busy"}) {
    Config config = ConfigOf(0);
    config.failure_timeout_ms = 500;
    Process process(config);
    process.receiver.keep_messages = false;
    ASSERT_TRUE(process.Listen().ok());
    Child child(config, task);
    Peer* peer = process.receiver.WaitJoined({Role::kWorker, 1});
    ASSERT_NE(peer, nullptr);
    ASSERT_TRUE(process.receiver.WaitMessages(1));
    const int64_t begin = NowMs();
    child.Signal(SIGSTOP);
    Status why;
    ASSERT_TRUE(process.receiver.WaitLost(peer, &why));
    EXPECT_GE(NowMs() - begin, 300);
    EXPECT_LT(NowMs() - begin, 2500);
    EXPECT_EQ(why.code(), Code::kUnavailable);
    EXPECT_NE(why.message().find("worker 1 (" + addresses_[1] +
                                 ") was lost: nothing heard for 0."),
              std::string::npos)
        << why.message();
  }
}

TEST_F(TcpTransport, QuietPeersKeepEachOtherAlive) {
  Config config = ConfigOf(0);
  config.failure_timeout_ms = 1000;
  Process process(config);
  ASSERT_TRUE(process.Listen().ok());
  Child child(config, "idle");
  Peer* peer = process.receiver.WaitJoined({Role::kWorker, 1});
  ASSERT_NE(peer, nullptr);
  EXPECT_TRUE(process.receiver.NobodyLostFor(3500));
}

// ---- Strangers

TEST_F(TcpTransport, StrangersAreDroppedAndTheJobGoesOn) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  ExpectThatTheJobGoesOn(&process);
  const size_t before = OpenDescriptors();
  std::vector<std::vector<uint8_t>> says;
  const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  says.emplace_back(http.begin(), http.end());
  says.emplace_back(4000, 0x00);
  says.emplace_back(4000, 0xff);
  says.push_back(Frame(1, 1, {}));                           // no hello in it
  says.push_back(Frame(1, 2, std::vector<uint8_t>(32, 7)));  // proof first
  says.push_back(Frame(1, 3, std::vector<uint8_t>(32, 7)));  // admit first
  says.push_back(Frame(1, 4, {}));  // refusal, no reason
  says.push_back(Frame(1, 77, {1, 2, 3}));
  std::vector<uint8_t> huge = Frame(1, 1, {});
  huge[12] = huge[13] = huge[14] = huge[15] = 0xff;  // 4 GiB to follow
  says.push_back(huge);
  std::mt19937 random(20240607);
  for (int i = 0; i < 60; ++i) {
    std::vector<uint8_t> bytes(1 + random() % 3000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (i % 3 == 0 && bytes.size() > 16) {
      const std::vector<uint8_t> frame = Frame(
          1, static_cast<uint16_t>(1 + random() % 4),
          std::vector<uint8_t>(
              bytes.begin(),
              bytes.begin() + static_cast<ptrdiff_t>(bytes.size() % 400)));
      bytes = frame;
    }
    says.push_back(bytes);
  }
  ::testing::internal::CaptureStderr();
  for (const std::vector<uint8_t>& bytes : says) {
    Stranger stranger(ports_[0]);
    stranger.Say(bytes);
    EXPECT_TRUE(stranger.IsDroppedWithin(4000)) << bytes.size() << " bytes";
  }
  for (int i = 0; i < 20; ++i) {
    Stranger stranger(ports_[0]);  // comes and goes, as port scanners do
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log,
                    "dropped a connection from 127.0.0.1: it is not a "
                    "tf_byteps process"),
            1u)
      << log;
  ExpectThatTheJobGoesOn(&process);
  // The last to be dropped may still be on their way out.
  const int64_t deadline = NowMs() + kPatienceMs;
  while (OpenDescriptors() > before && NowMs() < deadline) {
    process.receiver.NobodyLostFor(10);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(TcpTransport, EveryTruncationOfAHelloIsHarmless) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  const std::vector<uint8_t> hello =
      Handshake::Dialer(ConfigOf(1), {Role::kWorker, 0}, Nonce{}).TakeOutput();
  for (size_t bytes = 0; bytes < hello.size(); bytes += 3) {
    Stranger stranger(ports_[0]);
    stranger.Say(std::vector<uint8_t>(
        hello.begin(), hello.begin() + static_cast<ptrdiff_t>(bytes)));
    stranger.EndOfInput();
    EXPECT_TRUE(stranger.IsDroppedWithin(4000));
  }
  ExpectThatTheJobGoesOn(&process);
}

TEST_F(TcpTransport, SilenceIsDroppedAfterFiveSeconds) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  ::testing::internal::CaptureStderr();
  const int64_t begin = NowMs();
  Stranger silent(ports_[0]), half(ports_[0]);
  half.Say("tfbyt");
  EXPECT_TRUE(silent.IsDroppedWithin(20000));
  EXPECT_TRUE(half.IsDroppedWithin(20000));
  EXPECT_GE(NowMs() - begin, 4900);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, "did not say who it is within 5.0 s"), 1u) << log;
}

TEST_F(TcpTransport, AThousandSilentConnectionsDoNotKeepOthersOut) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < 2600) GTEST_SKIP() << "too few descriptors allowed";
  const rlimit raised{2600, limit.rlim_max};
  if (limit.rlim_cur < 2600) setrlimit(RLIMIT_NOFILE, &raised);
  {
    Process process(ConfigOf(0));
    ASSERT_TRUE(process.Listen().ok());
    const size_t before = OpenDescriptors();
    ::testing::internal::CaptureStderr();
    std::vector<std::unique_ptr<Stranger>> silent;
    for (int i = 0; i < 1000; ++i) {
      silent.push_back(std::make_unique<Stranger>(ports_[0]));
    }
    const int64_t begin = NowMs();
    ExpectThatTheJobGoesOn(&process);
    EXPECT_LT(NowMs() - begin, 4000);
    EXPECT_LE(OpenDescriptors(), before + 1000 + 130);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_LE(CountOf(log, "\n"), 3u) << log;
    for (auto& stranger : silent) {
      EXPECT_TRUE(stranger->IsDroppedWithin(20000));
    }
  }
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(TcpTransport, RunningOutOfDescriptorsCostsNoCpu) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  ::testing::internal::CaptureStderr();
  // It takes the lowest free number; none is left for accept.
  Socket client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const rlimit tight{static_cast<rlim_t>(client.fd() + 1), limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &tight);
  const Endpoint to = LocalEndpoint(ports_[0]);
  EXPECT_EQ(connect(client.fd(), to.get(), to.bytes), 0);
  const int64_t before = CpuMs();
  EXPECT_TRUE(process.receiver.NobodyLostFor(1500));
  EXPECT_LT(CpuMs() - before, 100);
  setrlimit(RLIMIT_NOFILE, &limit);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log,
                    "cannot accept connections for now: too many open "
                    "files"),
            1u)
      << log;
  ExpectThatTheJobGoesOn(&process);
}

// ---- Who may come in

TEST_F(TcpTransport, AnotherVersionIsToldBothVersions) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  ::testing::internal::CaptureStderr();
  Stranger stranger(ports_[0]);
  stranger.Say(Frame(2, 1, {9, 9, 9, 9}));
  const std::vector<uint8_t> answer = stranger.Hear(1024, kPatienceMs);
  const std::string text(answer.begin(), answer.end());
  const std::string sentence =
      "the process that dialed runs a tf_byteps with protocol version 2, "
      "worker 0 one with version 1";
  EXPECT_NE(text.find(sentence), std::string::npos) << text;
  EXPECT_TRUE(stranger.IsDroppedWithin(4000));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, sentence), 1u) << log;
}

TEST_F(TcpTransport, ARefusalByAnotherVersionReachesTheUser) {
  Socket listener;
  ASSERT_EQ(ListenAt(LocalEndpoint(ports_[0]), &listener), 0);
  Process process(ConfigOf(1));
  Peer* peer = process.Dial(0);
  pollfd wait{listener.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, kPatienceMs), 1);
  Socket accepted;
  Endpoint from;
  ASSERT_EQ(AcceptFrom(listener, &accepted, &from), 0);
  ByteWriter body;
  body.Text("versions 9 and 1\n\x1b[31m differ");
  const std::vector<uint8_t> frame = Frame(9, 4, body.Take());
  ASSERT_EQ(send(accepted.fd(), frame.data(), frame.size(), 0),
            static_cast<ssize_t>(frame.size()));
  Status why;
  ASSERT_TRUE(process.receiver.WaitRefused(peer, &why));
  EXPECT_EQ(why.message(), "worker 0 (" + addresses_[0] +
                               ") refuses this process: versions 9 and 1?"
                               "?[31m differ");
}

TEST_F(TcpTransport, TheWrongTokenIsNamedOnBothSides) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  ::testing::internal::CaptureStderr();
  Config config = ConfigOf(1);
  config.job_token = "stolen";
  Process other(config);
  Peer* peer = other.Dial(0);
  Status why;
  ASSERT_TRUE(other.receiver.WaitRefused(peer, &why));
  const std::string sentence =
      "worker 1 carries another job's token than worker 0";
  EXPECT_NE(why.message().find(sentence), std::string::npos) << why.message();
  // One thread greets both, so the first is through when the second is.
  ExpectThatTheJobGoesOn(&process);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, sentence), 1u) << log;
  EXPECT_EQ(CountOf(log, "stolen"), 0u);
}

TEST_F(TcpTransport, SameCountsButOtherAddressesAreExplained) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  Config config = ConfigOf(1);
  config.cluster_digest = "another";
  Stranger stranger(ports_[0]);
  EXPECT_FALSE(stranger.Greet(config, {Role::kWorker, 0}));
  EXPECT_NE(stranger.reason().find("describe different clusters"),
            std::string::npos)
      << stranger.reason();
}

TEST_F(TcpTransport, ANameOutsideTheClusterIsRefused) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  Config config = ConfigOf(1);
  config.self.index = 7;
  Stranger stranger(ports_[0]);
  EXPECT_FALSE(stranger.Greet(config, {Role::kWorker, 0}));
  EXPECT_EQ(stranger.reason(),
            "worker 7 is not in the cluster of 3 workers and no dedicated "
            "server");
}

TEST_F(TcpTransport, DialingTheWrongProcessIsExplained) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  Process other(ConfigOf(2));
  Peer* peer = other.transport->Dial({Role::kWorker, 1}, addresses_[0]);
  Status why;
  ASSERT_TRUE(other.receiver.WaitRefused(peer, &why));
  EXPECT_NE(why.message().find("worker 2 looks for worker 1, but this address "
                               "is worker 0's"),
            std::string::npos)
      << why.message();
}

TEST_F(TcpTransport, ASlowGreetingIsAccepted) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  Stranger slow(ports_[0]);
  const std::vector<uint8_t> hello =
      Handshake::Dialer(ConfigOf(1), {Role::kWorker, 0}, Nonce{}).TakeOutput();
  for (const uint8_t byte : hello) slow.Say(std::vector<uint8_t>{byte});
  EXPECT_FALSE(slow.Hear(1024, kPatienceMs).empty());
}

// ---- After the greeting

TEST_F(TcpTransport, RubbishFromAPeerDropsIt) {
  Config config = ConfigOf(0);
  config.max_message_bytes = 1 << 20;
  std::vector<std::pair<std::vector<uint8_t>, std::string>> cases;
  cases.emplace_back(std::vector<uint8_t>(48, 0xff),
                     "a message of unknown kind 65535");
  cases.emplace_back(std::vector<uint8_t>(48, 0), "a message of unknown kind");
  cases.emplace_back(Encoded(DataHeader(1, uint64_t{1} << 62)),
                     "of 4611686018427387904 bytes, more than 1048576");
  Header ping;
  ping.payload_bytes = 5;
  cases.emplace_back(Encoded(ping), "a ping of 5 bytes");
  for (const auto& [bytes, reason] : cases) {
    Process process(config);
    ASSERT_TRUE(process.Listen().ok());
    Stranger stranger(ports_[0]);
    ASSERT_TRUE(stranger.Greet(ConfigOf(1), {Role::kWorker, 0}));
    Peer* peer = process.receiver.WaitJoined({Role::kWorker, 1});
    ASSERT_NE(peer, nullptr);
    stranger.Say(bytes);
    Status why;
    ASSERT_TRUE(process.receiver.WaitLost(peer, &why));
    EXPECT_EQ(why.code(), Code::kUnavailable);
    EXPECT_NE(why.message().find("broke the protocol"), std::string::npos);
    EXPECT_NE(why.message().find(reason), std::string::npos) << why.message();
    EXPECT_TRUE(stranger.IsDroppedWithin(4000));
    ExpectThatTheJobGoesOn(&process);
  }
}

TEST_F(TcpTransport, RandomBytesAfterTheGreetingAreHarmless) {
  std::mt19937 random(4711);
  Config config = ConfigOf(0);
  config.max_message_bytes = 1 << 16;
  Process process(config);
  ASSERT_TRUE(process.Listen().ok());
  for (int i = 0; i < 40; ++i) {
    Stranger stranger(ports_[0]);
    ASSERT_TRUE(stranger.Greet(ConfigOf(1), {Role::kWorker, 0}));
    Peer* peer = process.receiver.WaitJoined({Role::kWorker, 1});
    ASSERT_NE(peer, nullptr);
    std::vector<uint8_t> bytes(1 + random() % 200000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (i % 2 == 0) {  // a good header in front
      const std::vector<uint8_t> header =
          Encoded(DataHeader(1, random() % 70000));
      bytes.insert(bytes.begin(), header.begin(), header.end());
    }
    stranger.Say(bytes);
    stranger.EndOfInput();
    Status why;
    ASSERT_TRUE(process.receiver.WaitLost(peer, &why));
  }
  ExpectThatTheJobGoesOn(&process);
}

TEST_F(TcpTransport, MessagesMayComeByteByByte) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  Stranger stranger(ports_[0]);
  ASSERT_TRUE(stranger.Greet(ConfigOf(1), {Role::kWorker, 0}));
  std::vector<uint8_t> stream;
  for (uint64_t i = 0; i < 4; ++i) {
    const std::vector<uint8_t> header = Encoded(DataHeader(i, 10 * i));
    const std::vector<uint8_t> payload = PatternOf(1, i, 10 * i);
    stream.insert(stream.end(), header.begin(), header.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
  }
  for (const uint8_t byte : stream) stranger.Say(std::vector<uint8_t>{byte});
  ASSERT_TRUE(process.receiver.WaitMessages(4));
  const std::vector<Message> messages = process.receiver.messages();
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(messages[i].payload == PatternOf(1, i, 10 * i));
  }
}

TEST_F(TcpTransport, ALossMidwayIsAbandoned) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  Peer* peer = nullptr;
  {
    Stranger stranger(ports_[0]);
    ASSERT_TRUE(stranger.Greet(ConfigOf(1), {Role::kWorker, 0}));
    peer = process.receiver.WaitJoined({Role::kWorker, 1});
    ASSERT_NE(peer, nullptr);
    stranger.Say(Encoded(DataHeader(1, 1 << 20)));
    stranger.Say(std::vector<uint8_t>(1 << 19, 5));
  }
  Status why;
  ASSERT_TRUE(process.receiver.WaitLost(peer, &why));
  EXPECT_EQ(process.receiver.abandoned(), 1u);
  EXPECT_EQ(process.receiver.message_count(), 0u);
}

TEST_F(TcpTransport, WhatAPeerSaidLastIsReadThoughItsEndIsKnown) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  const std::vector<uint8_t> payload = PatternOf(0, 0, 8 << 20);
  Completions sent;
  Peer* peer = nullptr;
  {
    Stranger stranger(ports_[0]);
    ASSERT_TRUE(stranger.Greet(ConfigOf(1), {Role::kWorker, 0}));
    peer = process.receiver.WaitJoined({Role::kWorker, 1});
    ASSERT_NE(peer, nullptr);
    // Fills the socket, so that the peer's end resets the connection.
    process.transport->Send(peer, DataHeader(0, payload.size()), payload.data(),
                            sent.Next());
    // In one segment: a reset would discard later ones in the sender.
    std::vector<uint8_t> last_words;
    for (uint64_t i = 0; i < 100; ++i) {
      const std::vector<uint8_t> header = Encoded(DataHeader(i, 0));
      last_words.insert(last_words.end(), header.begin(), header.end());
    }
    stranger.Say(last_words);
  }
  Status why;
  ASSERT_TRUE(process.receiver.WaitLost(peer, &why));
  EXPECT_EQ(process.receiver.message_count(), 100u);
  EXPECT_EQ(sent.failed(), 1u);
}

// ---- Shared memory

// A peer that has exchanged regions with a process, and may say anything.
class Sharer {
 public:
  static constexpr size_t kRegionBytes = 1 << 16;
  enum class Shows { kRegion, kNothing, kWhatMayShrink };

  Sharer(Process* process, const Config& config, uint16_t port,
         Shows shows = Shows::kRegion)
      : stranger_(port),
        region_(SharedRegion::Make(kRegionBytes).value()),
        exchange_(region_, &poller_, [this](const Ticket&, int fd) {
          std::string why;
          theirs_ = PeerRegion::Map(fd, &why);
        }) {
    EXPECT_TRUE(stranger_.Greet(config, {Role::kWorker, 0}));
    peer_ = process->receiver.WaitJoined({Role::kWorker, 1});
    EXPECT_NE(peer_, nullptr);
    std::vector<uint8_t> body;
    EXPECT_EQ(stranger_.HearMessage(&body).kind, Kind::kShare);
    const Result<ShareOffer> offer = DecodeShareOffer(body.data(), body.size());
    EXPECT_TRUE(offer.ok());
    if (!offer.ok() || shows == Shows::kNothing) return;
    if (shows == Shows::kWhatMayShrink) {
      ShowUnsealed(offer.value());
      return;
    }
    EXPECT_EQ(exchange_.Show(offer.value()), 0);
    EXPECT_EQ(stranger_.HearMessage(&body).kind, Kind::kShared);
  }

  Peer* peer() { return peer_; }
  Stranger& stranger() { return stranger_; }
  uint8_t* Bytes() {
    EXPECT_TRUE(!buffer_.empty() || region_->Take(kRegionBytes, &buffer_));
    return buffer_.data();
  }
  void Say(const Header& header) { stranger_.Say(Encoded(header)); }
  void SayInPlace(uint64_t place, uint64_t bytes) {
    Header header = DataHeader(3, bytes);
    header.in_place = true;
    header.place = place;
    Say(header);
  }

 private:
  void ShowUnsealed(ShareOffer offer) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, kRegionBytes), 0);
    Socket socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, offer.address.data(), offer.address.size());
    iovec text{offer.ticket.data(), offer.ticket.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = static_cast<socklen_t>(
        offsetof(sockaddr_un, sun_path) + offer.address.size());
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
    EXPECT_EQ(sendmsg(socket.fd(), &message, 0),
              static_cast<ssize_t>(offer.ticket.size()));
    close(fd);
  }

  Stranger stranger_;
  Poller poller_;
  std::shared_ptr<SharedRegion> region_;
  Buffer buffer_;  // all of region_
  std::shared_ptr<const PeerRegion> theirs_;
  RegionExchange exchange_;
  Peer* peer_ = nullptr;
};

class SharedMemory : public TcpTransport {
 protected:
  using Shows = Sharer::Shows;

  static std::shared_ptr<SharedRegion> Region() {
    return SharedRegion::Make(1 << 20).value();
  }

  // The peer is dropped with a sentence that has `reason`, and the job goes on.
  void ExpectDropped(Process* process, Sharer* sharer,
                     const std::string& reason) {
    Status why;
    ASSERT_TRUE(process->receiver.WaitLost(sharer->peer(), &why));
    EXPECT_EQ(why.code(), Code::kUnavailable);
    EXPECT_NE(why.message().find("worker 1 (" + addresses_[1] +
                                 ") broke the protocol: "),
              std::string::npos)
        << why.message();
    EXPECT_NE(why.message().find(reason), std::string::npos) << why.message();
    EXPECT_TRUE(sharer->stranger().IsDroppedWithin(kPatienceMs));
    EXPECT_EQ(process->receiver.message_count(), 0u);
    ExpectThatTheJobGoesOn(process);
  }
};

TEST_F(SharedMemory, APlaceInTheRegionIsReadAndReturned) {
  Process process(ConfigOf(0), Region());
  ASSERT_TRUE(process.Listen().ok());
  Sharer sharer(&process, ConfigOf(1), ports_[0]);
  const std::vector<uint8_t> payload = PatternOf(1, 3, 5000);
  const uint64_t place =
      Sharer::kRegionBytes - payload.size();  // up to its end
  std::memcpy(sharer.Bytes() + place, payload.data(), payload.size());
  sharer.SayInPlace(place, payload.size());
  ASSERT_TRUE(process.receiver.WaitMessages(1));
  EXPECT_TRUE(process.receiver.messages()[0].payload == payload);
  std::vector<uint8_t> body;
  const Header answer = sharer.stranger().HearMessage(&body);
  EXPECT_EQ(answer.kind, Kind::kReturned);
  EXPECT_EQ(answer.place, place);
}

TEST_F(SharedMemory, APlaceOutsideDropsThePeer) {
  constexpr uint64_t kEnd = Sharer::kRegionBytes;
  constexpr uint64_t kMost = ~uint64_t{0};
  const std::pair<uint64_t, uint64_t> places[] = {
      {kEnd, 1},     {kEnd - 4999, 5000},  {kEnd + 1, 0},
      {0, kEnd + 1}, {kEnd - 1, 1 << 20},  {kMost, 1},
      {kMost, 5000}, {kMost - 4999, 5000}, {uint64_t{1} << 63, 4096}};
  Process process(ConfigOf(0), Region());
  ASSERT_TRUE(process.Listen().ok());
  for (const auto& [place, bytes] : places) {
    Sharer sharer(&process, ConfigOf(1), ports_[0]);
    sharer.SayInPlace(place, bytes);
    ExpectDropped(&process, &sharer, "is not in the memory it shares");
  }
}

TEST_F(SharedMemory, APlaceOfWhoSharesNothingDropsThePeer) {
  for (Shows shows : {Shows::kNothing, Shows::kWhatMayShrink}) {
    Process process(ConfigOf(0), Region());
    ASSERT_TRUE(process.Listen().ok());
    Sharer sharer(&process, ConfigOf(1), ports_[0], shows);
    sharer.SayInPlace(0, 4096);
    ExpectDropped(&process, &sharer, "is not in the memory it shares");
  }
}

TEST_F(SharedMemory, AProcessWithoutARegionTakesNoPlaces) {
  Process process(ConfigOf(0));
  ASSERT_TRUE(process.Listen().ok());
  Stranger stranger(ports_[0]);
  ASSERT_TRUE(stranger.Greet(ConfigOf(1), {Role::kWorker, 0}));
  Peer* peer = process.receiver.WaitJoined({Role::kWorker, 1});
  ASSERT_NE(peer, nullptr);
  Header header = DataHeader(3, 4096);
  header.in_place = true;
  stranger.Say(Encoded(header));
  Status why;
  ASSERT_TRUE(process.receiver.WaitLost(peer, &why));
  EXPECT_NE(why.message().find("is not in the memory it shares"),
            std::string::npos)
      << why.message();
}

TEST_F(SharedMemory, MessagesOfTheExchangeHaveNoPlace) {
  for (Kind kind :
       {Kind::kPing, Kind::kShare, Kind::kShared, Kind::kReturned}) {
    Process process(ConfigOf(0), Region());
    ASSERT_TRUE(process.Listen().ok());
    Sharer sharer(&process, ConfigOf(1), ports_[0]);
    Header header;
    header.kind = kind;
    header.in_place = true;
    header.payload_bytes = 100;
    sharer.Say(header);
    ExpectDropped(&process, &sharer, " of 100 bytes");
  }
}

TEST_F(SharedMemory, WhatIsSaidOfThisRegionOutOfTurnIsHarmless) {
  Process process(ConfigOf(0), Region());
  ASSERT_TRUE(process.Listen().ok());
  Sharer sharer(&process, ConfigOf(1), ports_[0]);
  Header header;
  header.kind = Kind::kReturned;  // of what was never shown
  for (uint64_t place : {uint64_t{0}, uint64_t{4096}, ~uint64_t{0}}) {
    header.place = place;
    sharer.Say(header);
    sharer.Say(header);
  }
  header = Header();
  header.kind = Kind::kShared;  // the stranger was not shown it
  sharer.Say(header);
  header.kind = Kind::kShare;  // an offer that cannot be read
  header.payload_bytes = 40;
  sharer.Say(header);
  sharer.stranger().Say(std::vector<uint8_t>(40, 0xff));
  sharer.Say(DataHeader(0, 0));
  ASSERT_TRUE(process.receiver.WaitMessages(1));
  // So what it is sent comes over the connection.
  const std::vector<uint8_t> payload = PatternOf(0, 0, 10000);
  Completions sent;
  process.transport->Send(sharer.peer(), DataHeader(0, payload.size()),
                          payload.data(), sent.Next());
  std::vector<uint8_t> body;
  EXPECT_FALSE(sharer.stranger().HearMessage(&body).in_place);
  EXPECT_TRUE(body == payload);
  EXPECT_TRUE(sent.WaitAll());
}

// ---- Dialing

TEST_F(TcpTransport, DialIsPatientWithAListenerThatDoesNotAccept) {
  Process process(ConfigOf(1));
  Peer* peer = nullptr;
  {
    Socket listener;
    ASSERT_EQ(ListenAt(LocalEndpoint(ports_[0]), &listener), 0);
    peer = process.Dial(0);
    EXPECT_TRUE(process.receiver.NobodyLostFor(6000));
    EXPECT_EQ(peer->progress(), "connected, but it does not answer yet");
  }
  Process late(ConfigOf(0));
  ASSERT_TRUE(late.Listen().ok());
  EXPECT_EQ(process.receiver.WaitJoined({Role::kWorker, 0}), peer);
}

TEST_F(TcpTransport, ProgressSaysWhatIsWrong) {
  Process process(ConfigOf(1));
  Peer* refused = process.Dial(0);
  Peer* unknown =
      process.transport->Dial({Role::kWorker, 2}, "no-such-host.invalid:2222");
  const int64_t deadline = NowMs() + kPatienceMs;
  while (NowMs() < deadline && (refused->progress() == "not tried yet" ||
                                unknown->progress() == "not tried yet")) {
    process.receiver.NobodyLostFor(10);
  }
  EXPECT_EQ(refused->progress(), "connection refused");
  EXPECT_NE(unknown->progress().find(
                "the name no-such-host.invalid does not resolve"),
            std::string::npos)
      << unknown->progress();
}

TEST_F(TcpTransport, SomethingElseAtTheAddressIsSaidSo) {
  Socket listener;
  ASSERT_EQ(ListenAt(LocalEndpoint(ports_[0]), &listener), 0);
  Process process(ConfigOf(1));
  Peer* peer = process.Dial(0);
  pollfd wait{listener.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, kPatienceMs), 1);
  Socket accepted;
  Endpoint from;
  ASSERT_EQ(AcceptFrom(listener, &accepted, &from), 0);
  const std::string http = "HTTP/1.1 400 Bad Request\r\n\r\n";
  ASSERT_EQ(send(accepted.fd(), http.data(), http.size(), 0),
            static_cast<ssize_t>(http.size()));
  const int64_t deadline = NowMs() + kPatienceMs;
  bool said = false;
  while (!said && NowMs() < deadline) {
    said = peer->progress() == "something that is not tf_byteps answers there";
    process.receiver.NobodyLostFor(5);
  }
  EXPECT_TRUE(said);
}

TEST_F(TcpTransport, NamesResolve) {
  addresses_[0] = "localhost:" + std::to_string(ports_[0]);
  Process acceptor(ConfigOf(0)), dialer(ConfigOf(1));
  dialer.Dial(0);
  const Status status = acceptor.Listen();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(dialer.receiver.WaitJoined({Role::kWorker, 0}), nullptr);
}

TEST_F(TcpTransport, Ipv6) {
  Socket probe;
  if (ListenAt(ParseNumeric({"::1", FreePort()}).front(), &probe) != 0) {
    GTEST_SKIP() << "this host has no IPv6";
  }
  addresses_[0] = "[::1]:" + std::to_string(ports_[0]);
  Process acceptor(ConfigOf(0)), dialer(ConfigOf(1));
  const Status status = acceptor.Listen();
  ASSERT_TRUE(status.ok()) << status.message();
  dialer.Dial(0);
  EXPECT_NE(dialer.receiver.WaitJoined({Role::kWorker, 0}), nullptr);
}

TEST_F(TcpTransport, AnAddressOfAnotherHostListensOnAll) {
  addresses_[0] = "192.0.2.1:" + std::to_string(ports_[0]);
  Process acceptor(ConfigOf(0)), dialer(ConfigOf(1));
  const Status status = acceptor.Listen();
  ASSERT_TRUE(status.ok()) << status.message();
  dialer.transport->Dial({Role::kWorker, 0},
                         "127.0.0.1:" + std::to_string(ports_[0]));
  EXPECT_NE(dialer.receiver.WaitJoined({Role::kWorker, 0}), nullptr);
}

TEST_F(TcpTransport, APortTakenBySomethingElseIsNamed) {
  Socket listener;
  ASSERT_EQ(ListenAt(LocalEndpoint(ports_[0]), &listener), 0);
  Process process(ConfigOf(0));
  const Status status = process.Listen();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "cannot listen on " + addresses_[0] + ": Address already in use");
}

TEST_F(TcpTransport, ABadAddressIsRefused) {
  Process process(ConfigOf(1));
  for (const char* address : {"nowhere", "host:", "host:99999", ":1", ""}) {
    Peer* peer = process.transport->Dial({Role::kWorker, 0}, address);
    Status why;
    ASSERT_TRUE(process.receiver.WaitRefused(peer, &why));
    EXPECT_NE(why.message().find("must be host:port"), std::string::npos);
    EXPECT_FALSE(process.transport->Listen(address).ok());
  }
}

// ---- Descriptors

TEST_F(TcpTransport, AWholeLifeLeavesNoDescriptorBehind) {
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 20; ++i) {
    Process acceptor(ConfigOf(0)), dialer(ConfigOf(1));
    ASSERT_TRUE(acceptor.Listen().ok());
    dialer.Dial(0);
    dialer.Dial(2);  // nobody
    ASSERT_NE(dialer.receiver.WaitJoined({Role::kWorker, 0}), nullptr);
    if (i % 2 == 0) dialer.transport->Close(1000);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace testing
}  // namespace byteps
