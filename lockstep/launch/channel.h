// One end of a connection between launchers, on which messages travel: JSON objects, a line each.
// Each end sends a number that never was before, and every line after that carries a code made of
// the secret of the job, both numbers, the direction and how many lines came before it: what
// somebody else sends, changes, repeats or leaves out is not accepted, and ends the connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/json.h"

namespace lockstep::launch {

inline constexpr const char* kSecret = "LOCKSTEP_LAUNCH_SECRET";  // the variable

// One thread. Never waits for the other end.
class Channel {
 public:
  enum class End : std::uint8_t { kListened, kConnected };  // which one this is

  Channel(Descriptor connection, End end, std::string secret);

  // Whoever cannot take it at once, a few hundred messages late, is cut off. Before the other's
  // number is there it is kept.
  void send(const Json& message);
  // The next message that has come. Nothing: none has, or none will.
  std::optional<Json> receive();

  int descriptor() const { return connection_; }
  bool is_open() const { return connection_ >= 0; }
  const std::string& why_closed() const { return why_; }  // "closed its connection"
  bool is_trusted() const { return received_ > 0; }       // a message was accepted
  Seconds silence() const;                                // since bytes came
  void forgive_silence();                                 // counts from now on
  void close(const std::string& why);

 private:
  void put(const std::string& line);
  void take_bytes();
  std::optional<std::string> take_line();
  bool agree_on_key(const std::string& line);
  std::string code_of(char direction, std::uint64_t number, const std::string& text) const;

  Descriptor connection_;
  const End end_;
  const std::string secret_;
  const std::string nonce_;
  std::string key_;  // empty: the other's number has not come
  std::string unsent_, text_, why_;
  std::uint64_t sent_ = 0, received_ = 0;
  SteadyPoint heard_;
};

}  // namespace lockstep::launch
