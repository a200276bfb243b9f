#include "lockstep/launch/spares.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::launch {
namespace {

constexpr Seconds kBetweenStarts = {0.25};
constexpr int kMostFailures = 3;
constexpr std::size_t kLongestPlace = 1 << 16;  // of a message, in bytes
constexpr std::size_t kMostPassed = 3;          // descriptors: stdout, stderr, the store's socket

// Room for descriptors beside a message, aligned as the kernel wants it.
struct alignas(cmsghdr) Passed {
  char bytes[CMSG_SPACE(kMostPassed * sizeof(int))] = {};
};

bool send_place(int line, const std::string& text, const std::vector<int>& descriptors) {
  Passed passed;
  iovec bytes = {const_cast<char*>(text.data()), text.size()};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = passed.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  return ::sendmsg(line, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(text.size());
}

// The text of the message; empty when none comes any more.
std::string receive_place(int line, std::vector<int>& descriptors) {
  std::string text(kLongestPlace, '\0');
  Passed passed;
  iovec bytes = {text.data(), text.size()};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = passed.bytes;
  message.msg_controllen = sizeof passed.bytes;
  ssize_t got = 0;
  do got = ::recvmsg(line, &message, 0);
  while (got < 0 && errno == EINTR);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    descriptors.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(descriptors.data(), CMSG_DATA(header), descriptors.size() * sizeof(int));
  }
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace

void be_called_spare() {
  if (std::getenv(kSpare) != nullptr) ::prctl(PR_SET_NAME, "lockstep-spare");
}

// The message: what the descriptors beside it are, of o, e and s; then a line for each variable.
bool await_place() {
  const char* const own = std::getenv(kSpare);
  const auto number = number_in<int>(own == nullptr ? "" : own);
  if (!number) return true;
  ::unsetenv(kSpare);
  const Descriptor line(*number);
  std::vector<int> descriptors;
  const std::string text = receive_place(line, descriptors);
  const std::vector<std::string_view> lines = split(text, '\n');
  if (text.empty() || lines[0].size() != descriptors.size()) return false;
  ::prctl(PR_SET_NAME, "lockstep");
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::size_t equals = lines[i].find('=');
    if (equals == std::string_view::npos) continue;
    ::setenv(std::string(lines[i].substr(0, equals)).c_str(),
             std::string(lines[i].substr(equals + 1)).c_str(), 1);
  }
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    if (lines[0][i] == 's') {
      ::setenv(comm::kStoreSocket, std::to_string(descriptors[i]).c_str(), 1);
      continue;
    }
    ::dup2(descriptors[i], lines[0][i] == 'o' ? STDOUT_FILENO : STDERR_FILENO);
    ::close(descriptors[i]);
  }
  return true;
}

Spares::~Spares() {
  for (Spare& spare : waiting_) end(spare.process);
}

void Spares::end(Process& process) {
  ::kill(process.pid, SIGKILL);
  ::waitpid(process.pid, nullptr, 0);
}

void Spares::prepare(int wanted) {
  if (size() >= wanted || failed_ >= kMostFailures || !next_.expired()) return;
  next_ = Deadline::after(kBetweenStarts);
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  Descriptor line(ends[0]);
  const Descriptor theirs(ends[1]);
  auto started =
      start_process({program_, arguments_, {join_parts(kSpare, "=", ends[1])}, {}, "", {ends[1]}});
  if (started.ok()) {
    waiting_.push_back({*std::move(started), std::move(line)});
    return;
  }
  ++failed_;
}

std::optional<Process> Spares::take(const Start& start) {
  std::string text = "\n";
  std::vector<int> descriptors;
  const auto pass = [&](char name, int descriptor) {
    if (descriptor < 0) return;
    text.insert(descriptors.size(), 1, name);
    descriptors.push_back(descriptor);
  };
  pass('o', start.output.out);
  pass('e', start.output.err);
  for (const int descriptor : start.inherited) pass('s', descriptor);
  for (const std::string& entry : start.environment) text += entry + "\n";
  while (!waiting_.empty()) {
    Spare spare = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    pollfd ended = {spare.process.pidfd, POLLIN, 0};
    const bool lives = ::poll(&ended, 1, 0) == 0;
    if (lives && send_place(spare.line, text, descriptors)) return std::move(spare.process);
    end(spare.process);
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
