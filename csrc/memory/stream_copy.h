// Copies what nobody reads soon, such as a result to where its tensor lies.
#ifndef BYTEPS_MEMORY_STREAM_COPY_H_
#define BYTEPS_MEMORY_STREAM_COPY_H_

#include <cstddef>

namespace byteps {

// As memcpy. Large copies go past the cache where the processor can: it need
// not read what is overwritten, and what is in the cache stays there.
void StreamCopy(void* to, const void* from, size_t bytes);

}  // namespace byteps

#endif  // BYTEPS_MEMORY_STREAM_COPY_H_
