#include "lockstep/pipeline/csv.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::pipeline {
namespace {

constexpr std::string_view kKinds = "FBIW";  // in the order of PassKind
constexpr std::string_view kOverlap = "OVERLAP_F_B";
constexpr std::string_view kCommunication[] = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                               "UNSHARD", "RESHARD", "REDUCE_GRAD"};

constexpr std::int32_t kMaxNumber = 1 << 24;

// Of a cell, counted from 0.
struct Place {
  std::size_t row = 0;
  std::size_t column = 0;
};

std::string cell_text(const CsvSheet::Cell& cell) {
  if (cell.empty()) return "";
  if (cell.size() == 1) return to_text(cell[0]);
  return "(" + to_text(cell[0]) + ";" + to_text(cell[1]) + ")" + std::string(kOverlap);
}

std::string where(const Place& place, std::string_view cell) {
  return join_parts("row ", place.row + 1, ", column ", place.column + 1, ", `", cell, "`");
}

// Splits off what is before the mark, or all.
std::string_view take_until(std::string_view& rest, char mark) {
  const std::size_t at = rest.find(mark);
  const std::string_view part = rest.substr(0, at);
  rest.remove_prefix(at == rest.npos ? rest.size() : at + 1);
  return part;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::optional<std::int32_t> take_number(std::string_view& rest) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || rest[0] == '-') return std::nullopt;
  rest.remove_prefix(end - rest.data());
  return number;
}

class CellReader {
 public:
  CellReader(const Place& place, std::string_view cell) : place_(place), cell_(cell) {}

  Result<CsvSheet::Cell> read() const {
    if (cell_.empty()) return CsvSheet::Cell{};
    if (cell_[0] == '(') return read_overlap();
    const Pass pass = LS_TRY(read_pass(cell_));
    return CsvSheet::Cell{pass};
  }

 private:
  Error refuse(std::string_view what, std::string help) const {
    return {Code::kSyntax, where(place_, cell_) + ": " + std::string(what), std::move(help)};
  }

  Result<Pass> read_pass(std::string_view token) const {
    std::string_view rest = token;
    const auto stage = take_number(rest);
    const std::size_t digits = std::min(rest.find_first_of("0123456789"), rest.size());
    const std::string_view kind = rest.substr(0, digits);
    rest.remove_prefix(digits);
    if (stage && std::ranges::find(kCommunication, kind) != std::end(kCommunication))
      return refuse("communication is of the compute_comms format, a schedule is compute alone",
                    "write the file with format=\"compute_only\"");
    const auto microbatch = take_number(rest);
    const std::size_t number = kind.size() == 1 ? kKinds.find(kind[0]) : kKinds.npos;
    if (!stage || !microbatch || number == kKinds.npos || !rest.empty())
      return refuse("not a stage, one of F, I, W, B, and a microbatch",
                    "for example 2F0; an idle cell is empty");
    if (std::max(*stage, *microbatch) > kMaxNumber)
      return refuse(join_parts("a number above ", kMaxNumber), "no run has as many");
    return Pass{static_cast<PassKind>(number), {*stage}, {*microbatch}};
  }

  Result<CsvSheet::Cell> read_overlap() const {
    std::string_view rest = cell_.substr(1);
    std::string_view inside = take_until(rest, ')');
    const std::string_view first = trimmed(take_until(inside, ';')), second = trimmed(inside);
    const Pass forward = LS_TRY(read_pass(first));
    const Pass backward = LS_TRY(read_pass(second));
    if (rest != kOverlap || forward.kind != PassKind::kForward ||
        backward.kind != PassKind::kBackward)
      return refuse("passes at once are one F and one B", "for example (0F3;7B1)OVERLAP_F_B");
    return CsvSheet::Cell{forward, backward};
  }

  Place place_;
  std::string_view cell_;
};

// Finds shape and placement of a sheet, and where in it a pass is.
class Survey {
 public:
  explicit Survey(const CsvSheet& sheet) : sheet_(sheet) {}

  Result<Schedule> schedule() {
    if (auto error = find_homes()) return *std::move(error);
    const Placement placement = LS_TRY(find_placement());
    shape_.coords = static_cast<int>(sheet_.rows.size());
    shape_.chunks = static_cast<int>(homes_.size()) / shape_.coords;
    Timetable timetable(sheet_.rows.size());
    each_pass([&](const Pass& pass, const Place& at) { timetable[at.row].push_back(pass); });
    if (auto fault = find_fault(shape_, placement, timetable)) return located(*std::move(fault));
    return Schedule::create(shape_, placement, std::move(timetable));
  }

 private:
  template <class Visit>
  void each_pass(Visit visit) const {
    for (std::size_t row = 0; row < sheet_.rows.size(); ++row)
      for (std::size_t column = 0; column < sheet_.rows[row].size(); ++column)
        for (const Pass& pass : sheet_.rows[row][column]) visit(pass, Place{row, column});
  }

  std::string name(const Place& at) const {
    return where(at, cell_text(sheet_.rows[at.row][at.column]));
  }

  static Error refuse(std::string message, std::string help) {
    return {Code::kBadSchedule, std::move(message), std::move(help)};
  }

  std::optional<Error> find_homes() {
    std::optional<Error> error;
    each_pass([&](const Pass& pass, const Place& at) {
      const auto [home, is_new] = homes_.emplace(pass.stage.value, at);
      if (home->second.row != at.row && !error)
        error = refuse(join_parts(name(at), ": stage ", pass.stage.value, " is in row ",
                                  home->second.row + 1, " too, column ", home->second.column + 1),
                       "a stage belongs to one row");
      if (pass.microbatch.value < shape_.microbatches) return;
      shape_.microbatches = pass.microbatch.value + 1;
      last_microbatch_ = at;
    });
    int next = 0;
    for (const auto& [stage, home] : homes_)
      if (stage != next++ && !error)
        error = refuse(join_parts(name(home), ": there is no stage ", next - 1, " before it"),
                       "stages are counted from 0, without a gap");
    const int rows = static_cast<int>(sheet_.rows.size());
    if (!error && (homes_.empty() || next % rows != 0))
      error = refuse(join_parts(next, " stages in ", rows, " rows"),
                     "give every row equally many stages, at least one");
    return error;
  }

  Result<Placement> find_placement() const {
    const int rows = static_cast<int>(sheet_.rows.size());
    bool is_loop = true, is_v = true;
    for (const auto& [stage, home] : homes_) {
      const bool was_loop = is_loop, was_v = is_v;
      const int row = static_cast<int>(home.row);
      const int loop = coord_of(Placement::kLoop, {stage}, rows).value;
      const int v = coord_of(Placement::kV, {stage}, rows).value;
      is_loop = is_loop && loop == row;
      is_v = is_v && v == row;
      if (is_loop || is_v) continue;
      std::string message =
          join_parts(name(home), ": stage ", stage, " belongs in row ", (was_loop ? loop : v) + 1);
      if (was_loop && was_v && loop != v)
        message += join_parts(" of a loop, ", v + 1, " of a V");
      else if (!was_loop || !was_v)
        message += ", going by the stages before it";
      return refuse(std::move(message),
                    "stages go round the rows in a loop, or down and up in a V");
    }
    return is_loop ? Placement::kLoop : Placement::kV;
  }

  // The same error, with the cell at fault where there is one.
  Error located(ScheduleFault fault) const {
    std::optional<Place> found;
    each_pass([&](const Pass& pass, const Place& at) {
      if (pass == fault.pass) found = at;
    });
    Error& error = fault.error;
    error.message = found ? name(*found) + ": " + error.message
                          : join_parts(error.message, ": microbatches = ", shape_.microbatches,
                                       " because of ", name(last_microbatch_));
    return std::move(error);
  }

  const CsvSheet& sheet_;
  std::map<std::int32_t, Place> homes_;  // per stage: its first pass
  Shape shape_ = {.microbatches = 0};
  Place last_microbatch_;
};

}  // namespace

Result<CsvSheet> parse_csv(std::string_view text) {
  CsvSheet sheet;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::vector<CsvSheet::Cell>& row = sheet.rows.emplace_back();
    for (bool is_last = false; !is_last;) {
      is_last = line.find(',') == line.npos;
      const std::string_view token = trimmed(take_until(line, ','));
      const auto cell = LS_TRY(CellReader({sheet.rows.size() - 1, row.size()}, token).read());
      row.push_back(cell);
    }
  }
  if (sheet.rows.empty()) return Error{Code::kSyntax, "no rows", "give one row per pipeline rank"};
  return sheet;
}

Result<Schedule> to_schedule(const CsvSheet& sheet) {
  LS_CHECK(!sheet.rows.empty(), "a sheet without rows");
  return Survey(sheet).schedule();
}

Result<Schedule> from_csv(std::string_view text) {
  const CsvSheet sheet = LS_TRY(parse_csv(text));
  return to_schedule(sheet);
}

std::string to_csv(const CsvSheet& sheet) {
  std::string text;
  for (const auto& row : sheet.rows) {
    for (std::size_t column = 0; column < row.size(); ++column)
      text += (column == 0 ? "" : ",") + cell_text(row[column]);
    text += "\r\n";
  }
  return text;
}

std::string to_csv(const Schedule& schedule) {
  CsvSheet sheet;
  for (int coord = 0; coord < schedule.shape().coords; ++coord) {
    auto& row = sheet.rows.emplace_back();
    for (const Pass& pass : schedule.passes({coord})) row.push_back({pass});
  }
  return to_csv(sheet);
}

}  // namespace lockstep::pipeline
