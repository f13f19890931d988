// Memory for payloads, used again and again.
//
// A Buffer is aligned to a cache line and goes back to its pool when its owner
// lets go of it. The pool is thread-safe and must outlive its buffers. It keeps
// at most `kept_bytes`; what comes back beyond that is freed.
#ifndef BYTEPS_MEMORY_BUFFER_POOL_H_
#define BYTEPS_MEMORY_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace byteps {

class BufferPool;

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& o) noexcept { *this = static_cast<Buffer&&>(o); }
  Buffer& operator=(Buffer&& o) noexcept;
  ~Buffer() { Release(); }

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  friend class BufferPool;
  void Release();

  BufferPool* pool_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;      // as asked for
  size_t capacity_ = 0;  // of the memory block
};

class BufferPool {
 public:
  explicit BufferPool(size_t kept_bytes) : kept_bytes_(kept_bytes) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // True with a buffer of `bytes` bytes of unknown content; false if there is
  // no memory. A buffer of 0 bytes always works.
  bool Take(size_t bytes, Buffer* buffer);

 private:
  friend class Buffer;
  void GiveBack(uint8_t* data, size_t capacity);

  const size_t kept_bytes_;
  std::mutex mutex_;
  size_t free_bytes_ = 0;                         // guarded by mutex_
  std::map<size_t, std::vector<uint8_t*>> free_;  // guarded by mutex_
};

}  // namespace byteps

#endif  // BYTEPS_MEMORY_BUFFER_POOL_H_
