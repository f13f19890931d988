// The settings of one process, decided once by tf_byteps/config.py and passed
// down; nothing in the core reads the environment.
#ifndef BYTEPS_BASE_CONFIG_H_
#define BYTEPS_BASE_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace byteps {

enum class Role : uint8_t { kServer = 0, kWorker = 1 };

// A process of the job. Servers are the dedicated ones (`ps` tasks); a worker
// may serve as well.
struct ProcessName {
  Role role = Role::kWorker;
  uint32_t index = 0;

  bool operator==(const ProcessName& o) const {
    return role == o.role && index == o.index;
  }
  bool operator!=(const ProcessName& o) const { return !(*this == o); }
  // Servers come first; the later process of a pair dials the earlier.
  bool operator<(const ProcessName& o) const {
    return role != o.role ? role < o.role : index < o.index;
  }
};

// "worker 1" or "server 0".
inline std::string ToString(const ProcessName& name) {
  return (name.role == Role::kWorker ? "worker " : "server ") +
         std::to_string(name.index);
}

struct Config {
  ProcessName self;
  std::vector<std::string> workers;  // "host:port" by index
  std::vector<std::string> servers;  // dedicated ones; empty: workers serve
  bool mixed = false;                // workers serve beside dedicated servers
  bool one_host = false;             // all processes are on the same
  // Of the hosts' links, relative to each other: workers, then dedicated
  // servers. Empty: all are equal.
  std::vector<double> bandwidths;
  std::string job_token;       // shared secret, never logged
  std::string cluster_digest;  // of the cluster description

  uint64_t partition_bytes = 0;  // 0: what fits the tensor
  uint64_t credit_bytes = 256u << 10;
  uint64_t max_message_bytes = uint64_t{1} << 32;
  int64_t failure_timeout_ms = 10000;
  int64_t start_timeout_ms = 120000;
  int64_t stall_warning_ms = 60000;
  int64_t stall_limit_ms = 1800000;
  int reduce_threads = 1;
  std::string timeline;  // folder to record into; empty: nothing is recorded
  bool shared_memory = true;
  bool rebalance = true;  // worker 0 measures, and proposes other shares

  uint32_t num_workers() const { return static_cast<uint32_t>(workers.size()); }
  uint32_t num_dedicated() const {
    return static_cast<uint32_t>(servers.size());
  }
  bool workers_serve() const { return servers.empty() || mixed; }
  // The processes that sum: the dedicated servers, then the workers, if they
  // do.
  uint32_t num_servers() const {
    return num_dedicated() + (workers_serve() ? num_workers() : 0);
  }
  ProcessName server_name(uint32_t server) const {
    if (server < num_dedicated()) return {Role::kServer, server};
    return {Role::kWorker, server - num_dedicated()};
  }
  bool serves(const ProcessName& p) const {
    return p.role == Role::kServer || workers_serve();
  }
  // The inverse of server_name, for a process that serves.
  uint32_t server_index(const ProcessName& p) const {
    return p.role == Role::kServer ? p.index : num_dedicated() + p.index;
  }
  ProcessName coordinator() const { return server_name(0); }
  bool is_server() const { return serves(self); }
  bool is_worker() const { return self.role == Role::kWorker; }
  const std::string& address(const ProcessName& p) const {
    return p.role == Role::kWorker ? workers[p.index] : servers[p.index];
  }
};

}  // namespace byteps

#endif  // BYTEPS_BASE_CONFIG_H_
