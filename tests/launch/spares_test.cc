// Spares, with forked processes of this program for ranks.
#include "lockstep/launch/spares.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "lockstep/comm/rendezvous.h"

namespace lockstep::launch {
namespace {

// A spare that says its number, then becomes what it is told: bash in the place of LibTorch. The
// descriptors come as await_place() takes them, which python reads here by the same rules.
constexpr const char* kRank = R"(exec python3 -c "
import array, os, socket
line = socket.socket(fileno=int(os.environ['LOCKSTEP_SPARE']))
text, passed, *_ = line.recvmsg(1 << 16, socket.CMSG_SPACE(12))
if not text: exit(0)
numbers = array.array('i')
for _, _, data in passed: numbers.frombytes(data)
kinds, *lines = text.decode().split('\n')
values = dict(l.split('=', 1) for l in lines if l)
out = numbers[kinds.index('o')]
os.write(out, (values['RANK'] + ' ' + values['MASTER_PORT'] + ' ' + kinds).encode())
")";

int wait_for(Process& process) {
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  return status;
}

TEST(Spares, BecomeRanksWithThePlaceAndTheDescriptorsOfOne) {
  Spares spares("/bin/bash", {"-c", kRank});
  const Deadline deadline = Deadline::after(Seconds{20});
  while (spares.size() < 2 && !deadline.expired()) spares.prepare(2);
  ASSERT_EQ(spares.size(), 2);
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  Start start = {"/bin/bash", {}, {"RANK=3", "MASTER_PORT=4711"}};
  start.output = {to, to};
  start.inherited = {STDIN_FILENO};
  auto rank = spares.take(start);
  ASSERT_TRUE(rank);
  to = Descriptor();
  EXPECT_EQ(wait_for(*rank), 0);
  char text[64] = {};
  ASSERT_GT(::read(from, text, sizeof text - 1), 0);
  EXPECT_STREQ(text, "3 4711 oes");
  EXPECT_EQ(spares.size(), 1);
}

TEST(Spares, OneThatHasEndedIsNoRank) {
  const Deadline deadline = Deadline::after(Seconds{20});
  Spares spares("/bin/false", {});
  for (bool was_refused = false; !was_refused;) {
    ASSERT_FALSE(deadline.expired());
    while (spares.size() < 1) spares.prepare(1);
    auto taken = spares.take({"/bin/false", {}, {"RANK=0"}});
    if (taken) wait_for(*taken);  // it had not ended yet
    was_refused = !taken;
    EXPECT_EQ(spares.size(), 0);
  }
}

}  // namespace
}  // namespace lockstep::launch
