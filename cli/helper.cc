#include "cli/helper.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace lockstep::cli {

namespace {

// python3 with both ends of its streams at `socket`. In a process group of its own, so that Ctrl-C
// is ours to hear.
int spawn(int socket, const char* script, const std::string& path, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::array<std::string, 5> words = {"python3", "-c", script, path,
                                      std::filesystem::read_symlink("/proc/self/exe").string()};
  std::array<char*, 6> argv = {};
  for (std::size_t i = 0; i < words.size(); ++i) argv[i] = words[i].data();
  const int failed = ::posix_spawnp(&pid, "python3", &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return failed;
}

}  // namespace

Result<Helper> Helper::start(const HelperScript& script, const std::string& path) {
  Helper made(script.package);
  std::array<int, 2> ends = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return made.lost(std::strerror(errno));
  made.socket_ = ends[0];
  const int failed = spawn(ends[1], script.text, path, made.pid_);
  ::close(ends[1]);
  const std::string reader = join_parts("`", path, "` is read by Python's `", script.package, "`");
  if (failed != 0) {
    made.pid_ = -1;
    return Error{Code::kUnsuitableEnvironment,
                 join_parts(reader, ", and python3 cannot be started: ", std::strerror(failed)),
                 "install python3; " + script.instead};
  }
  const Json ready = LS_TRY(made.answer());
  if (const Json* const missing = ready.find("missing"))
    return Error{Code::kUnsuitableEnvironment,
                 join_parts(reader, ", which python3 does not have: ", missing->as_text()),
                 join_parts("`pip install ", script.package, "` or tools/setup installs it; ",
                            script.instead)};
  return made;
}

Error Helper::lost(const std::string& why) const {
  return {Code::kUnsuitableEnvironment,
          join_parts("the process of Python's `", package_, "` ended: ", why), ""};
}

Helper::~Helper() {
  if (socket_ >= 0) ::close(socket_);  // it ends when there are no more lines
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

Result<Json> Helper::ask(const std::string& word, Json value) {
  const std::string text = Json::object({{word, std::move(value)}}).dump() + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t sent = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return lost(std::strerror(errno));
    at += static_cast<std::size_t>(sent);
  }
  return answer();
}

Result<Json> Helper::answer() {
  const std::string text = LS_TRY(line());
  Json json = LS_TRY(Json::parse(text));
  if (const Json* const error = json.find("error"))
    return Error{Code::kUnsuitableEnvironment,
                 join_parts("Python's `", package_, "` refuses: ", error->as_text()), ""};
  return json;
}

Result<std::string> Helper::line() {
  std::array<char, 65536> buffer = {};
  for (std::size_t seen = 0;;) {
    if (const auto end = unread_.find('\n', seen); end != std::string::npos) {
      std::string text = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return text;
    }
    seen = unread_.size();
    const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return lost(std::strerror(errno));
    if (got == 0) return lost("it closed its end");
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace lockstep::cli
