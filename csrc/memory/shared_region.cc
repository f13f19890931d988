#include "csrc/memory/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

namespace byteps {
namespace {

// Newer than the C library that wheels are built against.
constexpr unsigned kCloseOnExec = 1;      // MFD_CLOEXEC
constexpr unsigned kAllowSealing = 2;     // MFD_ALLOW_SEALING
constexpr int kAddSeals = 1024 + 9;       // F_ADD_SEALS
constexpr int kGetSeals = 1024 + 10;      // F_GET_SEALS
constexpr int kSealSeal = 1;              // F_SEAL_SEAL
constexpr int kSealShrink = 2;            // F_SEAL_SHRINK
constexpr int kSealGrow = 4;              // F_SEAL_GROW
constexpr int kSealFutureWrite = 0x0010;  // F_SEAL_FUTURE_WRITE
constexpr int64_t kTmpfs = 0x01021994;    // TMPFS_MAGIC

constexpr size_t kAlignment = 64;

int CreateMemfd() {
#ifdef SYS_memfd_create
  return static_cast<int>(
      syscall(SYS_memfd_create, "tf_byteps", kCloseOnExec | kAllowSealing));
#else
  errno = ENOSYS;
  return -1;
#endif
}

bool Seal(int fd) {
  constexpr int kSize = kSealSeal | kSealShrink | kSealGrow;
  return fcntl(fd, kAddSeals, kSize | kSealFutureWrite) == 0 ||
         fcntl(fd, kAddSeals, kSize) == 0;
}

uint8_t* MapWhole(int fd, size_t bytes, int access) {
  void* base = mmap(nullptr, bytes, access, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  (void)madvise(base, bytes, MADV_DONTFORK);
  return static_cast<uint8_t*>(base);
}

}  // namespace

SharedRegion::SharedRegion(int fd, uint8_t* base, size_t size)
    : fd_(fd), base_(base), size_(size), free_{{0, size}} {}

Result<std::shared_ptr<SharedRegion>> SharedRegion::Make(size_t bytes) {
  const auto failed = [](const std::string& what) {
    return FailedPrecondition("no shared memory here: " + what + ": " +
                              strerror(errno));
  };
  const int fd = CreateMemfd();
  if (fd < 0) return failed("memfd_create");
  // The mapping that writes has to be there before the seal that forbids more.
  uint8_t* base = nullptr;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    base = MapWhole(fd, bytes, PROT_READ | PROT_WRITE);
  }
  if (base == nullptr || !Seal(fd)) {
    const Status status =
        failed("memfd of " + std::to_string(bytes) + " bytes");
    if (base != nullptr) munmap(base, bytes);
    close(fd);
    return status;
  }
  return std::shared_ptr<SharedRegion>(new SharedRegion(fd, base, bytes));
}

SharedRegion::~SharedRegion() {
  munmap(base_, size_);
  close(fd_);
}

bool SharedRegion::Take(size_t bytes, Buffer* buffer) {
  *buffer = Buffer();
  if (bytes == 0) return true;
  if (bytes > size_) return false;
  const size_t capacity = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < capacity) continue;
    const uint64_t place = it->first;
    const uint64_t left = it->second - capacity;
    free_.erase(it);
    if (left > 0) free_.emplace(place + capacity, left);
    *buffer = Buffer(this, base_ + place, bytes, capacity);
    return true;
  }
  return false;
}

void SharedRegion::GiveBack(uint8_t* data, size_t capacity) {
  uint64_t place = PlaceOf(data);
  uint64_t bytes = capacity;
  std::lock_guard<std::mutex> lock(mutex_);
  if (retired_.count(place) != 0) return;
  auto after = free_.lower_bound(place);
  if (after != free_.end() && after->first == place + bytes) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == place) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(place, bytes);
}

void SharedRegion::Retire(uint64_t place) {
  std::lock_guard<std::mutex> lock(mutex_);
  retired_.insert(place);
}

std::shared_ptr<const PeerRegion> PeerRegion::Map(int fd, std::string* why) {
  struct stat about{};
  struct statfs system{};
  const int seals = fcntl(fd, kGetSeals);
  uint8_t* base = nullptr;
  if (seals < 0 || (seals & kSealShrink) == 0) {
    *why = "it may shrink";
  } else if (fstatfs(fd, &system) != 0 || system.f_type != kTmpfs) {
    // Reading a page of its own kind, where none is left, ends the process.
    *why = "it has huge pages";
  } else if (fstat(fd, &about) != 0 || about.st_size <= 0) {
    *why = "it has no size";
  } else {
    base = MapWhole(fd, static_cast<size_t>(about.st_size), PROT_READ);
    if (base == nullptr) *why = strerror(errno);
  }
  close(fd);
  if (base == nullptr) return nullptr;
  return std::shared_ptr<const PeerRegion>(
      new PeerRegion(base, static_cast<size_t>(about.st_size)));
}

PeerRegion::~PeerRegion() { munmap(base_, size_); }

}  // namespace byteps
