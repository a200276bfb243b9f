#include "lockstep/launch/channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/hmac.h"

namespace lockstep::launch {
namespace {

constexpr const char* kProtocol = "lockstep.launch/1";
constexpr std::size_t kNonce = 32, kCode = 64;  // hexadecimal digits
constexpr std::size_t kLongest = 8192;          // of a line

std::string new_nonce() {
  std::random_device device;
  std::string text;
  while (text.size() < kNonce)
    text += to_hex(static_cast<std::uint64_t>(device()) << 32 | device());
  return text;
}

std::string greeting(const std::string& nonce) { return join_parts(kProtocol, " ", nonce); }

}  // namespace

Channel::Channel(Descriptor connection, End end, std::string secret)
    : connection_(std::move(connection)),
      end_(end),
      secret_(std::move(secret)),
      nonce_(new_nonce()),
      heard_(std::chrono::steady_clock::now()) {
  ::fcntl(connection_, F_SETFL, ::fcntl(connection_, F_GETFL) | O_NONBLOCK);
  put(greeting(nonce_));
}

void Channel::close(const std::string& why) {
  if (!is_open()) return;
  why_ = why;
  connection_ = Descriptor();
}

Seconds Channel::silence() const {
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - heard_).count()};
}

void Channel::forgive_silence() { heard_ = std::chrono::steady_clock::now(); }

std::string Channel::code_of(char direction, std::uint64_t number, const std::string& text) const {
  const Sha256Digest code = hmac_sha256(key_, join_parts(direction, " ", number, " ", text));
  return to_hex(ByteSpan(code));
}

void Channel::send(const Json& message) {
  const std::string text = message.dump();
  LS_CHECK(text.size() + kCode + 2 < kLongest, "a message of ", text.size(), " bytes");
  if (key_.empty()) {
    unsent_ += text + "\n";
    return;
  }
  put(code_of(end_ == End::kListened ? 'l' : 'c', sent_++, text) + " " + text);
}

void Channel::put(const std::string& line) {
  if (!is_open()) return;
  const std::string bytes = line + "\n";
  const ssize_t put = ::send(connection_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put == static_cast<ssize_t>(bytes.size())) return;
  // What came before it closed may tell why, and is read first.
  if (put < 0 && (errno == EPIPE || errno == ECONNRESET)) return;
  close("does not take what it is sent");
}

void Channel::take_bytes() {
  char bytes[4096];
  while (is_open() && text_.size() < kLongest) {
    const ssize_t got = ::recv(connection_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      const std::string why =
          got == 0 ? "closed its connection" : "lost its connection: " + system_reason();
      if (text_.find('\n') == std::string::npos) close(why);
      return;
    }
    heard_ = std::chrono::steady_clock::now();
    text_.append(bytes, got);
  }
}

std::optional<std::string> Channel::take_line() {
  const std::size_t end = text_.find('\n');
  if (end == std::string::npos) {
    if (text_.size() >= kLongest) close("sends lines that no launcher sends");
    return std::nullopt;
  }
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

bool Channel::agree_on_key(const std::string& line) {
  const std::string theirs = line.size() < kNonce ? "" : line.substr(line.size() - kNonce);
  if (theirs.empty() || line != greeting(theirs) || theirs == nonce_) return false;
  const bool listened = end_ == End::kListened;
  const Sha256Digest key = hmac_sha256(
      secret_,
      join_parts(kProtocol, " ", listened ? nonce_ : theirs, " ", listened ? theirs : nonce_));
  key_ = to_hex(ByteSpan(key));
  std::string kept = std::exchange(unsent_, "");
  for (std::size_t end = 0; (end = kept.find('\n')) != std::string::npos; kept.erase(0, end + 1))
    put(code_of(listened ? 'l' : 'c', sent_++, kept.substr(0, end)) + " " + kept.substr(0, end));
  return true;
}

std::optional<Json> Channel::receive() {
  take_bytes();
  while (is_open()) {
    const auto line = take_line();
    if (!line) return std::nullopt;
    if (key_.empty()) {
      if (!agree_on_key(*line)) close("is no launcher of this version");
      continue;
    }
    const std::string text = line->substr(std::min(line->size(), kCode + 1));
    const std::string code = code_of(end_ == End::kListened ? 'c' : 'l', received_, text);
    // Digests of both, so that time tells nothing of how far they agree.
    if (!equal(sha256(line->substr(0, std::min(line->size(), kCode))), sha256(code))) {
      close(received_ == 0 ? "has another secret" : "sent what it did not say");
      return std::nullopt;
    }
    ++received_;
    auto message = Json::parse(text);
    if (message.ok() && message->is_object()) return *std::move(message);
    close("sent what is no message");
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
