#include "csrc/memory/buffer_pool.h"

#include <cstdlib>
#include <utility>

#include "csrc/memory/shared_region.h"

namespace byteps {
namespace {

constexpr size_t kAlignment = 64;

// Sizes are rounded up to a quarter of a power of two, so that tensors of
// similar size share buffers and at most a fifth is wasted.
size_t CapacityFor(size_t bytes) {
  size_t power = kAlignment * 4;
  while (power < bytes) power *= 2;
  const size_t step = power / 8;
  size_t capacity = power / 2;
  while (capacity < bytes) capacity += step;
  return (capacity + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Buffer& Buffer::operator=(Buffer&& o) noexcept {
  if (this != &o) {
    Release();
    source_ = std::exchange(o.source_, nullptr);
    data_ = std::exchange(o.data_, nullptr);
    size_ = std::exchange(o.size_, 0);
    capacity_ = std::exchange(o.capacity_, 0);
    read_only_ = std::exchange(o.read_only_, false);
  }
  return *this;
}

void Buffer::Release() {
  if (data_ != nullptr) source_->GiveBack(data_, capacity_);
  data_ = nullptr;
  size_ = 0;
}

BufferPool::BufferPool(size_t kept_bytes, std::shared_ptr<SharedRegion> region)
    : kept_bytes_(kept_bytes), region_(std::move(region)) {}

BufferPool::~BufferPool() {
  for (auto& entry : free_) {
    for (uint8_t* data : entry.second) std::free(data);
  }
}

bool BufferPool::Take(size_t bytes, Buffer* buffer) {
  *buffer = Buffer();
  if (bytes == 0) return true;
  if (region_ != nullptr && region_->Take(bytes, buffer)) return true;
  // No process has this much; the rounding below must not overflow.
  if (bytes > SIZE_MAX / 4) return false;
  const size_t capacity = CapacityFor(bytes);
  uint8_t* data = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = free_.find(capacity);
    if (it != free_.end() && !it->second.empty()) {
      data = it->second.back();
      it->second.pop_back();
      free_bytes_ -= capacity;
    }
  }
  if (data == nullptr) {
    data = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, capacity));
    if (data == nullptr) return false;
  }
  *buffer = Buffer(this, data, bytes, capacity);
  return true;
}

void BufferPool::GiveBack(uint8_t* data, size_t capacity) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_bytes_ + capacity <= kept_bytes_) {
      free_[capacity].push_back(data);
      free_bytes_ += capacity;
      return;
    }
  }
  std::free(data);
}

}  // namespace byteps
