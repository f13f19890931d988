// Memory that other processes of the host may read: a memfd.
//
// A SharedRegion is this process's own. It hands out Buffers, lowest address
// first, so that what was just given back is used again while it is in the
// cache. Of its size only what was touched takes memory. It is sealed: it never
// shrinks, and where the kernel can (5.1) nobody else may write to it.
//
// A PeerRegion is another's, mapped for reading. Both are thread-safe and
// vanish with the last process that has them mapped.
#ifndef BYTEPS_MEMORY_SHARED_REGION_H_
#define BYTEPS_MEMORY_SHARED_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "csrc/base/status.h"
#include "csrc/memory/buffer_pool.h"

namespace byteps {

class SharedRegion final : public BufferSource {
 public:
  static constexpr size_t kDefaultBytes = size_t{256} << 20;

  // An error says what this host lacks.
  static Result<std::shared_ptr<SharedRegion>> Make(size_t bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int fd() const { return fd_; }
  bool Contains(const void* data) const {
    const auto* at = static_cast<const uint8_t*>(data);
    return at >= base_ && at < base_ + size_;
  }
  uint64_t PlaceOf(const void* data) const {
    return static_cast<uint64_t>(static_cast<const uint8_t*>(data) - base_);
  }

  // False if there is no room.
  bool Take(size_t bytes, Buffer* buffer);
  // The buffer that begins there is never used again: somebody who cannot be
  // asked any more may still read it.
  void Retire(uint64_t place);

  // Payload bytes that peers were shown here.
  std::atomic<uint64_t> shown_bytes{0};

 private:
  SharedRegion(int fd, uint8_t* base, size_t size);
  void GiveBack(uint8_t* data, size_t capacity) override;

  const int fd_;
  uint8_t* const base_;
  const size_t size_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // by place, sizes; guarded by mutex_
  std::set<uint64_t> retired_;         // guarded by mutex_
};

class PeerRegion {
 public:
  // Takes `fd`. Null if it is not a region that can be trusted to keep its
  // size; `why` says what is wrong.
  static std::shared_ptr<const PeerRegion> Map(int fd, std::string* why);
  ~PeerRegion();
  PeerRegion(const PeerRegion&) = delete;
  PeerRegion& operator=(const PeerRegion&) = delete;

  // Null if that is not all inside. The owner may write there at any time.
  uint8_t* At(uint64_t place, uint64_t bytes) const {
    return place > size_ || bytes > size_ - place ? nullptr : base_ + place;
  }

 private:
  PeerRegion(uint8_t* base, size_t size) : base_(base), size_(size) {}

  uint8_t* const base_;
  const size_t size_;
};

}  // namespace byteps

#endif  // BYTEPS_MEMORY_SHARED_REGION_H_
