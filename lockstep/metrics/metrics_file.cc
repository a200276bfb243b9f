#include "lockstep/metrics/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "lockstep/base/check.h"

namespace lockstep::metrics {
namespace {

Error unwritable(const std::string& path) {
  return {Code::kUnsuitableEnvironment,
          join_parts("cannot write `", path, "`: ", std::strerror(errno)),
          "is the disk full, or the directory missing or read-only?"};
}

Error broken_line(const std::string& path, std::int64_t number, const std::string& why) {
  return {Code::kBadMetrics, join_parts("`", path, "`, line ", number, ": ", why),
          "it is not a line of metrics.jsonl; move the file away to begin a new one"};
}

// The lines to keep, and how many are left out.
struct Kept {
  std::string text;
  std::int64_t dropped = 0;
};

Result<Kept> lines_until(const std::string& path, std::int64_t step) {
  Kept kept;
  const bool is_cut = LS_TRY(read_lines(path, [&](const Json& line, const std::string& text) {
    if (line.find("step")->as_int() <= step)
      kept.text += text + '\n';
    else
      ++kept.dropped;
    return Result<void>();
  }));
  kept.dropped += is_cut ? 1 : 0;
  return kept;
}

Result<void> replace(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  AppendFile file = LS_TRY(AppendFile::replace(fresh));
  LS_TRY(file.add(text));
  LS_TRY(file.sync());
  std::error_code failed;
  std::filesystem::rename(fresh, path, failed);
  if (!failed) return {};
  return Error{Code::kUnsuitableEnvironment,
               join_parts("cannot replace `", path, "`: ", failed.message())};
}

}  // namespace

Json event_line(const std::string& name, std::int64_t step) {
  return Json::object({{"event", name}, {"step", step}});
}

Result<bool> read_lines(
    const std::string& path,
    const std::function<Result<void>(const Json& line, const std::string& text)>& on_line) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{Code::kFileUnreadable,
                 join_parts("cannot read `", path, "`: ", std::strerror(errno))};
  std::int64_t number = 0;
  for (std::string text; std::getline(file, text);) {
    if (file.eof()) return true;  // without a line end
    ++number;
    const Result<Json> line = Json::parse(text);
    if (!line.ok()) return broken_line(path, number, line.error().message);
    const Json* const step = line->is_object() ? line->find("step") : nullptr;
    if (step == nullptr || !step->is_int()) return broken_line(path, number, "it has no `step`");
    if (const Result<void> taken = on_line(*line, text); !taken.ok())
      return broken_line(path, number, taken.error().message);
  }
  return false;
}

Result<MetricsFile> MetricsFile::create(const std::string& path) {
  AppendFile file = LS_TRY(AppendFile::create(path));
  return MetricsFile(std::move(file), 0);
}

Result<MetricsFile> MetricsFile::resume(const std::string& path, std::int64_t step) {
  std::int64_t dropped = 0;
  if (std::filesystem::exists(path)) {
    const Kept kept = LS_TRY(lines_until(path, step));
    dropped = kept.dropped;
    if (dropped > 0) LS_TRY(replace(path, kept.text));
  }
  AppendFile file = LS_TRY(AppendFile::extend(path));
  return MetricsFile(std::move(file), dropped);
}

Result<void> MetricsFile::add(const Json& line) {
  LS_CHECK(line.is_object() && line.find("step") != nullptr && line.find("step")->is_int(),
           "a line of metrics without a step");
  return file_.add(line.dump() + '\n');
}

Result<AppendFile> AppendFile::open(const std::string& path, int flags) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666));
  if (file < 0 && errno == EEXIST)
    return Error{Code::kBadMetrics, join_parts("`", path, "` is there already"),
                 "it tells of an earlier run: resume that one, or name another directory"};
  if (file < 0) return unwritable(path);
  return AppendFile(path, std::move(file));
}

Result<AppendFile> AppendFile::create(const std::string& path) { return open(path, O_EXCL); }
Result<AppendFile> AppendFile::replace(const std::string& path) { return open(path, O_TRUNC); }
Result<AppendFile> AppendFile::extend(const std::string& path) { return open(path, 0); }

// All of it or nothing, so that a full disk leaves no half line behind for the next one.
Result<void> AppendFile::add(std::string_view bytes) {
  const off_t before = ::lseek(file_, 0, SEEK_END);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Error error = unwritable(path_);
      if (before >= 0) (void)!::ftruncate(file_, before);
      return error;
    }
    bytes.remove_prefix(written);
  }
  return {};
}

Result<void> AppendFile::sync() {
  if (::fsync(file_) != 0) return unwritable(path_);
  return {};
}

}  // namespace lockstep::metrics
