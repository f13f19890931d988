#include "csrc/transport/tcp/resolver.h"

#include <gtest/gtest.h>

#include <future>

namespace byteps {
namespace {

using Answer = Result<std::vector<Endpoint>>;

Answer Ask(Resolver* resolver, const std::string& host) {
  std::promise<Answer> promise;
  resolver->Resolve(
      {host, 80}, [&](Answer answer) { promise.set_value(std::move(answer)); });
  return promise.get_future().get();
}

TEST(Resolver, AnswersInOrderOnAThreadOfItsOwn) {
  Resolver resolver;
  for (int i = 0; i < 3; ++i) {
    const Answer answer = Ask(&resolver, "localhost");
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_TRUE(IsLoopback(answer.value().front()));
  }
}

TEST(Resolver, ANameNobodyHasIsAnErrorThatNamesIt) {
  Resolver resolver;
  const Answer answer = Ask(&resolver, "no-such-host.invalid");
  EXPECT_NE(answer.status().message().find(
                "the name no-such-host.invalid does not resolve ("),
            std::string::npos)
      << answer.status().message();
}

TEST(Resolver, AfterCloseNothingIsAnswered) {
  Resolver resolver;
  resolver.Close();
  resolver.Resolve({"localhost", 80},
                   [](Answer) { ADD_FAILURE() << "answered after Close"; });
  resolver.Close();
}

}  // namespace
}  // namespace byteps
