// What a worker knows of each tensor name: its id, its round, and what it told
// the servers. One entry per name, for ever; so names must be few.
//
// Not thread-safe: the worker client's lock guards it. Entries stay where they
// are.
#ifndef BYTEPS_WORKER_TENSOR_TABLE_H_
#define BYTEPS_WORKER_TENSOR_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/messages.h"

namespace byteps {

struct PushPullOperation;

struct TensorEntry {
  std::string name;
  uint64_t id = 0;
  uint64_t next_round = 0;  // its upper bits are the generation
  uint32_t measured = 0;    // rounds of the period that is being measured
  uint64_t period = 0;      // which that is
  // The one push-pull under way, and those that came after it.
  std::shared_ptr<PushPullOperation> active;
  std::deque<std::shared_ptr<PushPullOperation>> waiting;
  // What each server was told last; null: nothing yet.
  std::vector<std::shared_ptr<const Declaration>> declared;
};

class TensorTable {
 public:
  explicit TensorTable(uint32_t num_servers) : num_servers_(num_servers) {}

  // The entry of `name`, made on first use. Internal if another name has the
  // same id.
  Result<TensorEntry*> Get(const std::string& name);
  // Null if there is none.
  TensorEntry* Find(uint64_t id);
  size_t size() const { return by_id_.size(); }

  template <typename Visitor>
  void ForEach(Visitor visit) {
    for (auto& entry : by_id_) visit(entry.second.get());
  }

 private:
  const uint32_t num_servers_;
  std::unordered_map<std::string, TensorEntry*> by_name_;
  std::unordered_map<uint64_t, std::unique_ptr<TensorEntry>> by_id_;
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_TENSOR_TABLE_H_
