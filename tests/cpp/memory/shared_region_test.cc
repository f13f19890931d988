#include "csrc/memory/shared_region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace byteps {
namespace {

constexpr size_t kBytes = 64 << 10;

std::shared_ptr<SharedRegion> Region() {
  return SharedRegion::Make(kBytes).value();
}

TEST(SharedRegion, WhatIsWrittenHereIsReadThere) {
  auto region = Region();
  Buffer buffer;
  ASSERT_TRUE(region->Take(100, &buffer));
  EXPECT_TRUE(region->Contains(buffer.data()));
  EXPECT_FALSE(buffer.read_only());
  std::string why;
  auto peer = PeerRegion::Map(dup(region->fd()), &why);
  ASSERT_NE(peer, nullptr) << why;
  buffer.data()[0] = 7;
  EXPECT_EQ(*peer->At(region->PlaceOf(buffer.data()), 100), 7);
}

TEST(SharedRegion, OutlivesItsOwner) {
  auto region = Region();
  Buffer buffer;
  ASSERT_TRUE(region->Take(100, &buffer));
  buffer.data()[99] = 5;
  const uint64_t place = region->PlaceOf(buffer.data());
  std::string why;
  auto peer = PeerRegion::Map(dup(region->fd()), &why);
  buffer = Buffer();
  region.reset();
  EXPECT_EQ(peer->At(place, 100)[99], 5);
}

TEST(SharedRegion, TheLowestRoomIsUsedFirst) {
  auto region = Region();
  Buffer a, b, c;
  ASSERT_TRUE(region->Take(1000, &a));
  ASSERT_TRUE(region->Take(1000, &b));
  const uint8_t* first = a.data();
  a = Buffer();
  ASSERT_TRUE(region->Take(500, &c));
  EXPECT_EQ(c.data(), first);
}

TEST(SharedRegion, RoomComesBackWhole) {
  auto region = Region();
  for (int order = 0; order < 2; ++order) {
    std::vector<Buffer> buffers(4);
    for (Buffer& buffer : buffers) {
      ASSERT_TRUE(region->Take(kBytes / 4, &buffer));
    }
    Buffer more;
    EXPECT_FALSE(region->Take(1, &more));
    const int turns[2][4] = {{0, 2, 1, 3}, {3, 1, 2, 0}};
    for (int i : turns[order]) buffers[i] = Buffer();
    ASSERT_TRUE(region->Take(kBytes, &more));
  }
  Buffer none;
  EXPECT_FALSE(region->Take(kBytes + 1, &none));
  EXPECT_TRUE(region->Take(0, &none));
}

TEST(SharedRegion, ARetiredPlaceIsNeverUsedAgain) {
  auto region = Region();
  Buffer a, b;
  ASSERT_TRUE(region->Take(1000, &a));
  const uint8_t* place = a.data();
  region->Retire(region->PlaceOf(place));
  a = Buffer();
  ASSERT_TRUE(region->Take(1000, &b));
  EXPECT_NE(b.data(), place);
}

TEST(PeerRegion, PlacesOutsideAreNull) {
  auto region = Region();
  std::string why;
  auto peer = PeerRegion::Map(dup(region->fd()), &why);
  ASSERT_NE(peer, nullptr);
  EXPECT_NE(peer->At(0, kBytes), nullptr);
  EXPECT_NE(peer->At(kBytes, 0), nullptr);
  EXPECT_EQ(peer->At(1, kBytes), nullptr);
  EXPECT_EQ(peer->At(kBytes + 1, 0), nullptr);
  EXPECT_EQ(peer->At(~uint64_t{0}, 2), nullptr);
  EXPECT_EQ(peer->At(8, ~uint64_t{0}), nullptr);
}

TEST(PeerRegion, WhatMayShrinkIsRefused) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  std::string why;
  EXPECT_EQ(PeerRegion::Map(fd, &why), nullptr);
  EXPECT_EQ(why, "it may shrink");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[1]);
  EXPECT_EQ(PeerRegion::Map(ends[0], &why), nullptr);
}

TEST(PeerRegion, HugePagesAreRefused) {
  const int fd =
      memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
  if (fd < 0) GTEST_SKIP() << "the kernel has no huge pages";
  ASSERT_EQ(ftruncate(fd, 2 << 20), 0);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW),
            0);
  std::string why;
  EXPECT_EQ(PeerRegion::Map(fd, &why), nullptr);
  EXPECT_EQ(why, "it has huge pages");
}

TEST(PeerRegion, IsForReading) {
  auto region = Region();
  EXPECT_EQ(ftruncate(region->fd(), 1), -1);
  void* writable = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        region->fd(), 0);
  if (writable != MAP_FAILED) {
    munmap(writable, kBytes);
    GTEST_SKIP() << "the kernel does not know F_SEAL_FUTURE_WRITE";
  }
}

}  // namespace
}  // namespace byteps
