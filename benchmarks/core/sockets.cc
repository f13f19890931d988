// Push-pull over plain blocking sockets: the least that can do the work. No
// handshake, no priorities, no limit on what is under way, no error handling.
//
//   bench_sockets server PORT WORKERS [flows]
//   bench_sockets worker INDEX WORKERS SERVERS [flows]
//
// Tensors are cut into pieces, which go round the servers. For each connection
// one thread receives and one sends. A server adds a piece of all workers and
// sends each the sum. With "flows" it answers at once, with anything, and adds
// nothing: the same bytes on the same ways, without a wait.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/core/task.h"
#include "csrc/base/clock.h"
#include "csrc/base/queue.h"
#include "csrc/reduce/reduce.h"

namespace byteps {
namespace {

constexpr size_t kPieceFloats = 1 << 17;
constexpr int64_t kStartMs = 60000;
constexpr int64_t kForEverMs = int64_t{1} << 40;

struct Header {
  uint64_t piece;
  uint64_t bytes;
};

bool Receive(int fd, void* to, size_t bytes) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = recv(fd, at, bytes, 0);
    if (count <= 0) return false;
    at += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

bool Send(int fd, const Header& header, const void* payload) {
  iovec parts[2] = {{const_cast<Header*>(&header), sizeof(header)},
                    {const_cast<void*>(payload), header.bytes}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  while (message.msg_iovlen > 0) {
    ssize_t count = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (count < 0) return false;
    while (message.msg_iovlen > 0 &&
           static_cast<size_t>(count) >= message.msg_iov->iov_len) {
      count -= static_cast<ssize_t>(message.msg_iov->iov_len);
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen == 0) break;
    iovec* first = message.msg_iov;
    first->iov_base = static_cast<char*>(first->iov_base) + count;
    first->iov_len -= static_cast<size_t>(count);
  }
  return true;
}

void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// --- a server ----------------------------------------------------------------

struct Reply {
  Header header;
  const void* payload;
};

// The sums of two rounds: a worker may push the next before all have the last.
struct Piece {
  std::mutex mutex;
  std::vector<float> sums[2];
  size_t arrived = 0;  // in all rounds
};

class Server {
 public:
  Server(int listener, size_t workers, bool flows)
      : flows_(flows), queues_(workers), anything_(kPieceFloats) {
    for (size_t i = 0; i < workers; ++i) {
      const int fd = accept(listener, nullptr, nullptr);
      SendAtOnce(fd);
      fds_.push_back(fd);
    }
  }

  void Run() {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < fds_.size(); ++i) {
      threads.emplace_back([this, i] { ReceiveAll(i); });
      threads.emplace_back([this, i] { SendAll(i); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void ReceiveAll(size_t worker) {
    Header header;
    std::vector<float> pushed;
    while (Receive(fds_[worker], &header, sizeof(header))) {
      if (flows_) queues_[worker].Push({header, anything_.data()});
      pushed.resize(header.bytes / sizeof(float));
      if (!Receive(fds_[worker], pushed.data(), header.bytes)) break;
      if (!flows_) Add(header, &pushed);
    }
    queues_[worker].Close();
  }

  void Add(const Header& header, std::vector<float>* pushed) {
    Piece* piece;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      piece = &pieces_[header.piece];
    }
    std::lock_guard<std::mutex> lock(piece->mutex);
    const size_t workers = fds_.size();
    std::vector<float>& sum = piece->sums[piece->arrived / workers % 2];
    if (piece->arrived++ % workers == 0) {
      sum.swap(*pushed);
    } else {
      Accumulate(Operation::kSum, DType::kFloat32, sum.data(), pushed->data(),
                 sum.size());
    }
    if (piece->arrived % workers != 0) return;
    for (Queue<Reply>& queue : queues_) queue.Push({header, sum.data()});
  }

  void SendAll(size_t worker) {
    while (const auto reply = queues_[worker].PopUntil(kForEverMs)) {
      if (!Send(fds_[worker], reply->header, reply->payload)) return;
    }
  }

  const bool flows_;
  std::vector<int> fds_;
  std::vector<Queue<Reply>> queues_;
  const std::vector<float> anything_;
  std::mutex mutex_;
  std::map<uint64_t, Piece> pieces_;  // guarded by mutex_
};

int RunServer(uint16_t port, size_t workers, bool flows) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ||
      listen(listener, static_cast<int>(workers))) {
    std::cerr << "cannot listen on port " << port << std::endl;
    return 1;
  }
  Server(listener, workers, flows).Run();
  return 0;
}

// --- a worker ----------------------------------------------------------------

int Connect(const std::string& server) {
  const size_t colon = server.rfind(':');
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port =
      htons(static_cast<uint16_t>(std::stoul(server.substr(colon + 1))));
  inet_pton(AF_INET, server.substr(0, colon).c_str(), &address.sin_addr);
  const int64_t deadline = NowMs() + kStartMs;
  while (NowMs() < deadline) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
        0) {
      SendAtOnce(fd);
      return fd;
    }
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return -1;
}

struct Slice {
  float* input;
  float* output;
  uint64_t bytes;
};

class Worker {
 public:
  // False if a server cannot be reached.
  bool Connect(const std::string& servers) {
    for (const std::string& server : Split(servers)) {
      fds_.push_back(byteps::Connect(server));
      if (fds_.back() < 0) return false;
    }
    return true;
  }

  bool Step(Tensors* tensors) {
    if (cut_ != tensors->generation) Cut(tensors);
    std::vector<std::thread> threads;
    std::atomic<bool> good{true};
    for (size_t i = 0; i < fds_.size(); ++i) {
      threads.emplace_back([&, i] {
        if (!SendAll(i)) good = false;
      });
      threads.emplace_back([&, i] {
        if (!ReceiveAll(i)) good = false;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return good;
  }

 private:
  void Cut(Tensors* tensors) {
    slices_.clear();
    for (size_t t = 0; t < tensors->inputs.size(); ++t) {
      std::vector<float>& input = tensors->inputs[t];
      for (size_t i = 0; i < input.size(); i += kPieceFloats) {
        const size_t count = std::min(kPieceFloats, input.size() - i);
        slices_.push_back(
            {&input[i], &tensors->outputs[t][i], count * sizeof(float)});
      }
    }
    cut_ = tensors->generation;
  }

  // Pieces of another generation have other numbers, for they have other sizes.
  uint64_t FirstPiece() const { return cut_ << 32; }

  bool SendAll(size_t server) const {
    for (size_t i = server; i < slices_.size(); i += fds_.size()) {
      const Slice& slice = slices_[i];
      if (!Send(fds_[server], {FirstPiece() + i, slice.bytes}, slice.input)) {
        return false;
      }
    }
    return true;
  }

  bool ReceiveAll(size_t server) const {
    for (size_t i = server; i < slices_.size(); i += fds_.size()) {
      Header header;
      if (!Receive(fds_[server], &header, sizeof(header))) return false;
      const Slice& slice = slices_[header.piece - FirstPiece()];
      if (!Receive(fds_[server], slice.output, slice.bytes)) return false;
    }
    return true;
  }

  std::vector<int> fds_;  // by server
  uint64_t cut_ = 0;      // generation
  std::vector<Slice> slices_;
};

int RunWorker(uint32_t rank, uint32_t workers, const std::string& servers,
              bool flows) {
  Worker worker;
  if (!worker.Connect(servers)) return 1;
  return Serve(rank, flows ? 0 : workers,
               [&worker](Tensors* tensors) { return worker.Step(tensors); });
}

}  // namespace
}  // namespace byteps

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) return 2;
  const bool flows = arguments.back() == "flows";
  const auto number = [&](size_t i) { return std::stoul(arguments[i]); };
  if (arguments[0] == "server") {
    return byteps::RunServer(static_cast<uint16_t>(number(1)), number(2),
                             flows);
  }
  return byteps::RunWorker(static_cast<uint32_t>(number(1)),
                           static_cast<uint32_t>(number(2)), arguments[3],
                           flows);
}
