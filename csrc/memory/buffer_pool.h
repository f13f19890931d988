// Memory for payloads, used again and again.
//
// A Buffer is aligned to a cache line and goes back to where it is from when
// its owner lets go of it. The pool is thread-safe and must outlive its
// buffers. It keeps at most `kept_bytes`; what comes back beyond that is freed.
#ifndef BYTEPS_MEMORY_BUFFER_POOL_H_
#define BYTEPS_MEMORY_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace byteps {

class SharedRegion;

// Where buffers are from. Outlives them.
class BufferSource {
 public:
  virtual void GiveBack(uint8_t* data, size_t capacity) = 0;

 protected:
  ~BufferSource() = default;
};

class Buffer {
 public:
  Buffer() = default;
  // `read_only`: another process's memory.
  Buffer(BufferSource* source, uint8_t* data, size_t size, size_t capacity,
         bool read_only = false)
      : source_(source),
        data_(data),
        size_(size),
        capacity_(capacity),
        read_only_(read_only) {}
  Buffer(Buffer&& o) noexcept { *this = static_cast<Buffer&&>(o); }
  Buffer& operator=(Buffer&& o) noexcept;
  ~Buffer() { Release(); }

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool read_only() const { return read_only_; }

 private:
  void Release();

  BufferSource* source_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;      // as asked for
  size_t capacity_ = 0;  // of the memory block
  bool read_only_ = false;
};

class BufferPool final : public BufferSource {
 public:
  // Buffers are from `region`, if there is one, as long as it has room.
  explicit BufferPool(size_t kept_bytes,
                      std::shared_ptr<SharedRegion> region = nullptr);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // True with a buffer of `bytes` bytes of unknown content; false if there is
  // no memory. A buffer of 0 bytes always works.
  bool Take(size_t bytes, Buffer* buffer);

 private:
  void GiveBack(uint8_t* data, size_t capacity) override;

  const size_t kept_bytes_;
  const std::shared_ptr<SharedRegion> region_;
  std::mutex mutex_;
  size_t free_bytes_ = 0;                         // guarded by mutex_
  std::map<size_t, std::vector<uint8_t*>> free_;  // guarded by mutex_
};

}  // namespace byteps

#endif  // BYTEPS_MEMORY_BUFFER_POOL_H_
