// A named thread that its owner joins; never detached.
#ifndef BYTEPS_BASE_THREAD_H_
#define BYTEPS_BASE_THREAD_H_

#include <functional>
#include <string>
#include <thread>

namespace byteps {

class Thread {
 public:
  Thread() = default;
  // `name` shows in debuggers and in top; the kernel keeps 15 characters.
  // Signals stay with the threads of the host program.
  Thread(const std::string& name, std::function<void()> body);
  Thread(Thread&&) = default;
  Thread& operator=(Thread&&) = default;
  ~Thread() { Join(); }

  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  bool IsCurrent() const {
    return thread_.get_id() == std::this_thread::get_id();
  }

 private:
  std::thread thread_;
};

}  // namespace byteps

#endif  // BYTEPS_BASE_THREAD_H_
