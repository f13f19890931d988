// Little-endian reading and writing of message bodies, bounds checked.
#ifndef BYTEPS_WIRE_BYTES_H_
#define BYTEPS_WIRE_BYTES_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace byteps {

class ByteWriter {
 public:
  template <typename T>
  void Number(T value) {
    static_assert(std::is_integral<T>::value, "integers only");
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<uint8_t>(bits >> (8 * i)));
    }
  }
  // Length (uint32) and bytes.
  void Text(const std::string& text) {
    Number(static_cast<uint32_t>(text.size()));
    out_.insert(out_.end(), text.begin(), text.end());
  }
  void Raw(const uint8_t* data, size_t bytes) {
    out_.insert(out_.end(), data, data + bytes);
  }
  std::vector<uint8_t> Take() { return std::move(out_); }

 private:
  std::vector<uint8_t> out_;
};

// Every read returns false, and all later ones too, once the input is too
// short; a body is good if the last read worked and finished() is true.
class ByteReader {
 public:
  ByteReader(const uint8_t* data, size_t bytes) : data_(data), left_(bytes) {}

  template <typename T>
  bool Number(T* value) {
    static_assert(std::is_integral<T>::value, "integers only");
    if (!ok_ || left_ < sizeof(T)) return ok_ = false;
    std::make_unsigned_t<T> bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<std::make_unsigned_t<T>>(
          static_cast<std::make_unsigned_t<T>>(data_[i]) << (8 * i));
    }
    *value = static_cast<T>(bits);
    data_ += sizeof(T);
    left_ -= sizeof(T);
    return true;
  }
  bool Text(std::string* text) {
    uint32_t length = 0;
    if (!Number(&length) || left_ < length) return ok_ = false;
    text->assign(reinterpret_cast<const char*>(data_), length);
    data_ += length;
    left_ -= length;
    return true;
  }
  bool Raw(uint8_t* out, size_t bytes) {
    if (!ok_ || left_ < bytes) return ok_ = false;
    for (size_t i = 0; i < bytes; ++i) out[i] = data_[i];
    data_ += bytes;
    left_ -= bytes;
    return true;
  }
  bool finished() const { return ok_ && left_ == 0; }

 private:
  const uint8_t* data_;
  size_t left_;
  bool ok_ = true;
};

}  // namespace byteps

#endif  // BYTEPS_WIRE_BYTES_H_
