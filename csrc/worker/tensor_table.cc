#include "csrc/worker/tensor_table.h"

namespace byteps {

Result<TensorEntry*> TensorTable::Get(const std::string& name) {
  auto known = by_name_.find(name);
  if (known != by_name_.end()) return known->second;
  const uint64_t id = TensorId(name);
  auto& entry = by_id_[id];
  if (entry != nullptr) {
    return Internal("the names \"" + entry->name + "\" and \"" + name +
                    "\" have the same id; rename one of the tensors");
  }
  entry = std::make_unique<TensorEntry>();
  entry->name = name;
  entry->id = id;
  entry->declared.resize(num_servers_);
  by_name_[name] = entry.get();
  return entry.get();
}

TensorEntry* TensorTable::Find(uint64_t id) {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second.get();
}

}  // namespace byteps
