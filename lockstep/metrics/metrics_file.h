// metrics.jsonl: what a run did, as one JSON object per line, each with "event" and "step". It is
// the source of truth; what other programs show is made beside it. docs/metrics.md lists every key.
//
// A line is appended with one write as soon as it is known, so a killed run loses none but at most
// the end of the last. Each step stands in the file once: a resumed run drops the lines of steps
// that it makes again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/json.h"
#include "lockstep/base/result.h"

namespace lockstep::metrics {

// A file that grows: what is added is with the operating system when add() returns, so that it
// outlives the process. One thread at a time.
class AppendFile {
 public:
  static Result<AppendFile> create(const std::string& path);   // refuses one that is there
  static Result<AppendFile> replace(const std::string& path);  // empties one that is there
  static Result<AppendFile> extend(const std::string& path);   // goes on at its end

  const std::string& path() const { return path_; }
  Result<void> add(std::string_view bytes);
  Result<void> sync();  // until the disk has it

 private:
  static Result<AppendFile> open(const std::string& path, int flags);
  AppendFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  Descriptor file_;
};

// {"event": name, "step": step}, to which more may be set.
Json event_line(const std::string& name, std::int64_t step);

// Hears of every line in order, parsed and as it stands. Returns whether the last one was cut
// short, which is passed over. Refuses, with its number, a line that is none of metrics.jsonl or
// that `on_line` refuses.
Result<bool> read_lines(
    const std::string& path,
    const std::function<Result<void>(const Json& line, const std::string& text)>& on_line);

// One thread at a time.
class MetricsFile {
 public:
  // Refuses a file that is there.
  static Result<MetricsFile> create(const std::string& path);
  // Drops the lines of steps after `step`, and a last line that was cut short, and goes on. The
  // file is replaced by rename, so that a crash leaves the old or the new one. It need not be
  // there.
  static Result<MetricsFile> resume(const std::string& path, std::int64_t step);

  const std::string& path() const { return file_.path(); }
  std::int64_t dropped() const { return dropped_; }  // lines, by resume()
  // REQUIRES: an object with a whole number "step".
  Result<void> add(const Json& line);

 private:
  MetricsFile(AppendFile file, std::int64_t dropped) : file_(std::move(file)), dropped_(dropped) {}

  AppendFile file_;
  std::int64_t dropped_;
};

}  // namespace lockstep::metrics
