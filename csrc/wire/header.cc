#include "csrc/wire/header.h"

#include <cstring>

#include "csrc/wire/bytes.h"

namespace byteps {
namespace {

bool IsKind(uint16_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::kDeclare:
    case Kind::kPush:
    case Kind::kCancel:
    case Kind::kResult:
    case Kind::kRoundError:
    case Kind::kStall:
    case Kind::kJoin:
    case Kind::kJoined:
    case Kind::kJoinError:
    case Kind::kReady:
    case Kind::kStart:
    case Kind::kGoodbye:
    case Kind::kLost:
    case Kind::kAskTime:
    case Kind::kTime:
    case Kind::kPropose:
    case Kind::kPrepare:
    case Kind::kPrepared:
    case Kind::kCommit:
    case Kind::kPing:
    case Kind::kShare:
    case Kind::kShared:
    case Kind::kReturned:
      return true;
  }
  return false;
}

// Encoding into a fixed place: the hot path must not allocate.
template <typename T>
uint8_t* Put(uint8_t* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out[i] = static_cast<uint8_t>(value >> (8 * i));
  }
  return out + sizeof(T);
}

}  // namespace

void Encode(const Header& header, uint8_t* out) {
  out = Put(out, static_cast<uint16_t>(header.kind));
  out = Put(out, header.flags);
  out = Put(out, header.membership_epoch);
  out = Put(out, header.key.tensor);
  out = Put(out, header.round);
  out = Put(out, header.key.partition);
  out = Put(out, uint32_t{header.in_place});
  out = Put(out, header.payload_bytes);
  Put(out, header.place);
}

Result<Header> DecodeHeader(const uint8_t* in) {
  ByteReader reader(in, Header::kBytes);
  Header header;
  uint16_t kind = 0;
  uint32_t in_place = 0;
  reader.Number(&kind);
  reader.Number(&header.flags);
  reader.Number(&header.membership_epoch);
  reader.Number(&header.key.tensor);
  reader.Number(&header.round);
  reader.Number(&header.key.partition);
  reader.Number(&in_place);
  reader.Number(&header.payload_bytes);
  reader.Number(&header.place);
  if (!IsKind(kind)) {
    return InvalidArgument("a message of unknown kind " + std::to_string(kind));
  }
  header.kind = static_cast<Kind>(kind);
  header.in_place = in_place != 0;
  return header;
}

}  // namespace byteps
