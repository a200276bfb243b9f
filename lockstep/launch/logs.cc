#include "lockstep/launch/logs.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <tuple>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::launch {
namespace {

std::pair<Descriptor, Descriptor> make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw IoError({Code::kUnsuitableEnvironment, "cannot make a pipe: " + system_reason()});
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

bool write_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t put = ::write(fd, bytes, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes += put;
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

}  // namespace

Result<void> Logs::check(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (!failed && ::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return Error{Code::kUnsuitableEnvironment,
               join_parts("--logs ", folder, ": no files can be made there: ",
                          failed ? failed.message() : system_reason()),
               "name another folder"};
}

Logs::Logs(const std::string& folder, int first, int ranks, const std::string& heading,
           std::function<void(const std::string&)> tell)
    : tell_(std::move(tell)) {
  for (int rank = first; rank < first + ranks; ++rank) {
    File file = {(std::filesystem::path(folder) / join_parts("rank-", rank, ".log")).string()};
    file.descriptor =
        Descriptor(::open(file.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    files_.push_back(std::move(file));
    write(files_.back(), heading.data(), heading.size());
    const std::size_t at = files_.size() - 1;
    const int out = pipe_to(at, rank == 0 ? STDOUT_FILENO : -1);
    outputs_.push_back({out, rank == 0 ? pipe_to(at, STDERR_FILENO) : out});
  }
  std::tie(stopped_, stop_) = make_pipe();
  thread_ = std::thread([this] { run(); });
}

Logs::~Logs() {
  started();
  stop_ = Descriptor();
  thread_.join();
}

int Logs::pipe_to(std::size_t file, int terminal) {
  auto [from, to] = make_pipe();
  ::fcntl(from, F_SETFL, O_NONBLOCK);
  copies_.push_back({std::move(from), file, terminal});
  theirs_.push_back(std::move(to));
  return theirs_.back();
}

void Logs::started() { theirs_.clear(); }

void Logs::run() {
  for (bool last = false; !last;) {
    std::vector<pollfd> waiting = {{stopped_, POLLIN, 0}};
    for (const Copy& copy : copies_) waiting.push_back({copy.from, POLLIN, 0});
    if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;
    last = waiting[0].revents != 0;  // then what is there yet is copied, and nobody waited for
    std::erase_if(copies_, [this](const Copy& each) { return !copy(each); });
  }
}

bool Logs::copy(const Copy& copy) {
  char bytes[1 << 14];
  ssize_t got = 0;
  while ((got = ::read(copy.from, bytes, sizeof bytes)) > 0) {
    write(files_[copy.file], bytes, static_cast<std::size_t>(got));
    if (copy.terminal >= 0) (void)write_all(copy.terminal, bytes, static_cast<std::size_t>(got));
  }
  return got != 0;
}

void Logs::write(File& file, const char* bytes, std::size_t size) {
  if (write_all(file.descriptor, bytes, size) || std::exchange(file.failed, true)) return;
  tell_(join_parts("`", file.path, "` cannot be written: ", system_reason(),
                   "; what it would hold is lost, and the job continues"));
}

}  // namespace lockstep::launch
