// Words for what happens on a connection, for the sentences users read.
#ifndef BYTEPS_TRANSPORT_DESCRIBE_H_
#define BYTEPS_TRANSPORT_DESCRIBE_H_

#include <string>

#include "csrc/base/config.h"
#include "csrc/wire/header.h"

namespace byteps {

// "push", "result", …
const char* Name(Kind kind);

// "push of key 0123456789abcdef/3", "goodbye": the kind, and the key if it has
// one.
std::string Describe(const Header& header);

// "10.2 s"
std::string Seconds(int64_t ms);

// "worker 1 (10.0.0.2:2222)"
std::string Label(const ProcessName& name, const std::string& address);

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_DESCRIBE_H_
