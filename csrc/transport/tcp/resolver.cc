#include "csrc/transport/tcp/resolver.h"

#include <optional>
#include <utility>

#include "csrc/base/clock.h"

namespace byteps {

void Resolver::Resolve(HostPort where, Done done) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    if (thread_ == nullptr) {
      thread_ = std::make_unique<Thread>("bps-resolve", [this] { Run(); });
    }
  }
  questions_.Push({std::move(where), std::move(done)});
}

void Resolver::Run() {
  constexpr int64_t kIdleMs = 60000;
  while (!questions_.finished()) {
    std::optional<Question> question = questions_.PopUntil(NowMs() + kIdleMs);
    if (!question.has_value()) continue;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) continue;
    }
    question->done(byteps::Resolve(question->where));
  }
}

void Resolver::Close() {
  questions_.Close();
  std::unique_ptr<Thread> thread;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    thread = std::move(thread_);
  }
  // Joined here, without the lock that its body takes.
}

}  // namespace byteps
