#include "csrc/control/rendezvous.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

Config Dedicated(ProcessName self) {
  Config config;
  config.self = self;
  config.workers = {"a:1", "b:1", "c:1"};
  config.servers = {"s:1", "t:1"};
  return config;
}

Config Colocated(uint32_t worker) {
  Config config;
  config.self = {Role::kWorker, worker};
  config.workers = {"a:1", "b:1", "c:1"};
  return config;
}

const ProcessName kServer0{Role::kServer, 0};
const ProcessName kServer1{Role::kServer, 1};
const ProcessName kWorker0{Role::kWorker, 0};
const ProcessName kWorker1{Role::kWorker, 1};
const ProcessName kWorker2{Role::kWorker, 2};

using Names = std::vector<ProcessName>;

TEST(Rendezvous, WorkersConnectToEveryDedicatedServerOnly) {
  EXPECT_EQ(RequiredPeers(Dedicated(kWorker1)), (Names{kServer0, kServer1}));
}

TEST(Rendezvous, ServersConnectToWorkersAndTheCoordinator) {
  EXPECT_EQ(RequiredPeers(Dedicated(kServer1)),
            (Names{kServer0, kWorker0, kWorker1, kWorker2}));
  EXPECT_EQ(RequiredPeers(Dedicated(kServer0)),
            (Names{kServer1, kWorker0, kWorker1, kWorker2}));
}

TEST(Rendezvous, ColocatedWorkersConnectToEachOther) {
  EXPECT_EQ(RequiredPeers(Colocated(1)), (Names{kWorker0, kWorker2}));
}

TEST(Rendezvous, InAMixedJobEverybodyConnectsToEverybody) {
  Config config = Dedicated(kWorker1);
  config.mixed = true;
  EXPECT_EQ(RequiredPeers(config),
            (Names{kServer0, kServer1, kWorker0, kWorker2}));
  config.self = kServer1;
  EXPECT_EQ(RequiredPeers(config),
            (Names{kServer0, kWorker0, kWorker1, kWorker2}));
  EXPECT_EQ(config.num_servers(), 5u);
  EXPECT_EQ(config.coordinator(), kServer0);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(config.serves(config.server_name(i)));
    EXPECT_EQ(config.server_index(config.server_name(i)), i);
  }
}

TEST(Rendezvous, EveryPairAgreesOnTheConnectionAndOnWhoDials) {
  for (const char* servers : {"dedicated", "colocated", "mixed"}) {
    Config config = Dedicated(kWorker0);
    if (*servers == 'c') config.servers.clear();
    config.mixed = *servers == 'm';
    for (const ProcessName& a : AllProcesses(config)) {
      for (const ProcessName& b : AllProcesses(config)) {
        if (a == b) continue;
        EXPECT_NE(ShouldDial(a, b), ShouldDial(b, a));
        auto requires_ = [&](ProcessName self, ProcessName other) {
          Config c = config;
          c.self = self;
          for (const ProcessName& p : RequiredPeers(c)) {
            if (p == other) return true;
          }
          return false;
        };
        EXPECT_EQ(requires_(a, b), requires_(b, a));
      }
    }
  }
}

TEST(Rendezvous, WaitingTextNamesRoleCountAddressAndProgress) {
  EXPECT_EQ(WaitingText(Dedicated(kWorker0), {kServer1, kWorker2},
                        [](const ProcessName& p) {
                          return p == kServer1 ? "connection refused" : "";
                        }),
            "waiting for server 1 of 2 at t:1 (connection refused), "
            "worker 2 of 3 at c:1");
}

}  // namespace
}  // namespace byteps
