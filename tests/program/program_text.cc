#include "tests/program/program_text.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/program/inventory.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/passes/passes.h"
#include "lockstep/program/text.h"  // op_token

namespace lockstep::program {
namespace {

constexpr std::string_view kFirstLine = "lockstep program 1";

void append_line(std::string& text, std::string_view key, std::string_view value) {
  text.append(key).append(" ").append(value).append("\n");
}

void append_number(std::string& text, std::string_view key, int value) {
  append_line(text, key, std::to_string(value));
}

void append_flag(std::string& text, std::string_view key, bool value) {
  append_line(text, key, value ? "yes" : "no");
}

template <class Range>
std::string joined(const Range& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

void append_step(std::string& text, const StepShape& step) {
  append_number(text, "coords", step.shape.coords);
  append_number(text, "chunks", step.shape.chunks);
  append_number(text, "microbatches", step.shape.microbatches);
  append_line(text, "placement", step.placement == pipeline::Placement::kLoop ? "loop" : "v");
  append_line(text, "stages", joined(step.stage_begin));
  append_number(text, "zero", step.zero);
  append_line(text, "period", step.period == Period::kStep ? "step" : "microbatch");
  append_flag(text, "replicas", step.replicas);
  append_flag(text, "tied", step.tied);
  append_line(text, "recompute", step.recompute.empty() ? "none" : joined(step.recompute));
  append_number(text, "resident", step.resident_units);
  append_number(text, "prefetch", step.prefetch);
  append_flag(text, "forward_only", step.forward_only);
  if (step.tensor_parallel) {
    append_flag(text, "tensor_parallel", true);
    append_line(text, "partial", step.partial.empty() ? "none" : joined(step.partial));
  }
  if (step.noise) append_flag(text, "noise", true);
  if (!step.experts.empty()) append_line(text, "experts", joined(step.experts));
}

void append_transfers(std::string& text, const Program& program) {
  if (program.transfers == usual_transfers(program.step))
    return append_line(text, "transfers", "usual");
  append_line(text, "transfers", std::to_string(program.transfers.size()));
  for (const Transfer& t : program.transfers)
    append_line(text, t.is_grad ? "grad" : "act",
                std::to_string(t.unit) + " " + std::to_string(t.microbatch) + " " +
                    std::to_string(t.from.value) + " " + std::to_string(t.to.value));
}

// Cuts what is before `mark` off `text`; all of it when there is no mark.
std::string_view take_until(std::string_view& text, char mark) {
  const std::size_t end = text.find(mark);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

// A whole number in the one spelling that to_text gives it.
bool parse_number(std::string_view text, std::int32_t& number) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_padded = text.starts_with("-0") || (text.size() > 1 && text.starts_with('0'));
  return status == std::errc{} && end == text.data() + text.size() && !is_padded;
}

const OpRow* find_row(std::string_view token) {
  for (int kind = 0; kind < kNumOpKinds; ++kind)
    if (const OpRow& row = op_row(static_cast<OpKind>(kind)); row.token == token) return &row;
  return nullptr;
}

std::optional<CommGroup> parse_group(std::string_view text) {
  for (int i = 0; i < kNumCommGroups; ++i)
    if (to_text(static_cast<CommGroup>(i)) == text) return static_cast<CommGroup>(i);
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<Program> parse() {
    if (!program()) return failure_;
    return std::move(program_);
  }

 private:
  bool fail(std::string_view token, const std::string& why) {
    failure_ = {Code::kSyntax,
                "line " + std::to_string(line_number_) + ", '" + std::string(token) + "': " + why,
                "the text form of a program is described in tests/program/program_text.h"};
    return false;
  }

  bool next_line() {
    ++line_number_;
    if (rest_.empty()) return fail("", "the text ends too early");
    line_ = take_until(rest_, '\n');
    return true;
  }

  bool program() {
    if (!next_line()) return false;
    if (line_ != kFirstLine) return fail(line_, "expected '" + std::string(kFirstLine) + "'");
    if (!step() || !transfers()) return false;
    program_.lists.resize(static_cast<std::size_t>(program_.step.shape.coords));
    for (std::size_t coord = 0; coord < program_.lists.size(); ++coord)
      if (!list(coord)) return false;
    ++line_number_;
    return rest_.empty() || fail(take_until(rest_, '\n'), "expected the end of the text");
  }

  bool step() {
    StepShape& step = program_.step;
    return number("coords", step.shape.coords) && number("chunks", step.shape.chunks) &&
           number("microbatches", step.shape.microbatches) &&
           choice("placement", step.placement,
                  {{"loop", pipeline::Placement::kLoop}, {"v", pipeline::Placement::kV}}) &&
           key("stages") && numbers(step.stage_begin) && number("zero", step.zero) &&
           choice("period", step.period,
                  {{"step", Period::kStep}, {"microbatch", Period::kMicrobatch}}) &&
           flag("replicas", step.replicas) && flag("tied", step.tied) &&
           bits("recompute", step.recompute) && number("resident", step.resident_units) &&
           number("prefetch", step.prefetch) && flag("forward_only", step.forward_only) &&
           tensor_parallel() && noise() && experts() && sound_shape();
  }

  // Two lines that only steps with tensor parallelism have.
  bool tensor_parallel() {
    constexpr std::string_view kName = "tensor_parallel";
    if (!rest_.starts_with(kName)) return true;
    return choice<bool>(kName, program_.step.tensor_parallel, {{"yes", true}}) &&
           bits("partial", program_.step.partial);
  }

  // A line that only steps with it have.
  bool noise() {
    constexpr std::string_view kName = "noise";
    if (!rest_.starts_with(kName)) return true;
    return choice<bool>(kName, program_.step.noise, {{"yes", true}});
  }

  // A line that only steps with some have.
  bool experts() {
    constexpr std::string_view kName = "experts";
    return !rest_.starts_with(kName) || bits(kName, program_.step.experts);
  }

  bool sound_shape() {
    const Result<void> sound = check_step(program_.step);
    return sound.ok() || fail(line_, "the header is unsound: " + sound.error().message);
  }

  // Goes to the next line, which begins with `name`.
  bool key(std::string_view name) {
    if (!next_line()) return false;
    const std::string_view found = take_until(line_, ' ');
    return found == name || fail(found, "expected '" + std::string(name) + "'");
  }

  bool number(std::string_view name, int& number) {
    if (!key(name)) return false;
    return parse_number(line_, number) || fail(line_, "expected a whole number");
  }

  template <class T>
  bool choice(std::string_view name, T& value,
              std::initializer_list<std::pair<std::string_view, T>> choices) {
    if (!key(name)) return false;
    std::string expected;
    for (const auto& [text, choice] : choices) {
      if (text == line_) return value = choice, true;
      expected += (expected.empty() ? "" : " or ") + std::string(text);
    }
    return fail(line_, "expected " + expected);
  }

  bool flag(std::string_view name, bool& value) {
    return choice<bool>(name, value, {{"no", false}, {"yes", true}});
  }

  bool numbers(std::vector<std::int32_t>& values) {
    values.clear();
    while (!line_.empty()) {
      const std::string_view token = take_until(line_, ' ');
      if (!parse_number(token, values.emplace_back()))
        return fail(token, "expected a whole number");
    }
    return !values.empty() || fail(line_, "expected whole numbers");
  }

  // One per unit, or none.
  bool bits(std::string_view name, std::vector<bool>& values) {
    if (!key(name)) return false;
    if (line_ == "none") return true;
    std::vector<std::int32_t> bits;
    if (!numbers(bits)) return false;
    for (const std::int32_t bit : bits) {
      if (bit != 0 && bit != 1) return fail(std::to_string(bit), "expected 0 or 1 for each unit");
      values.push_back(bit == 1);
    }
    return true;
  }

  bool transfers() {
    if (!key("transfers")) return false;
    if (line_ == "usual") return program_.transfers = usual_transfers(program_.step), true;
    std::int32_t count = 0;
    if (!parse_number(line_, count) || count < 0)
      return fail(line_, "expected 'usual' or the number of transfers");
    for (std::int32_t i = 0; i < count; ++i)
      if (!transfer()) return false;
    return true;
  }

  bool transfer() {
    if (!next_line()) return false;
    const std::string_view kind = take_until(line_, ' ');
    if (kind != "act" && kind != "grad") return fail(kind, "expected act or grad");
    std::vector<std::int32_t> values;
    if (!numbers(values)) return false;
    if (values.size() != 4) return fail(kind, "expected unit, microbatch, from and to");
    program_.transfers.push_back({.is_grad = kind == "grad",
                                  .unit = values[0],
                                  .microbatch = values[1],
                                  .from = {values[2]},
                                  .to = {values[3]}});
    return true;
  }

  bool list(std::size_t coord) {
    if (!next_line()) return false;
    const std::string_view name = take_until(line_, ':');
    if (name != std::to_string(coord))
      return fail(name, "expected the ops of pipeline rank " + std::to_string(coord));
    if (line_.empty()) return true;
    if (!line_.starts_with(' ')) return fail(line_.substr(0, 1), "expected a space");
    line_.remove_prefix(1);
    while (!line_.empty())
      if (!op(take_until(line_, ' '), program_.lists[coord].emplace_back())) return false;
    return true;
  }

  bool op(std::string_view token, Op& op) {
    std::string_view extras = token;
    std::string_view group = take_until(extras, '+');
    std::string_view numbers = take_until(group, ':');
    const std::size_t letters = numbers.find_first_not_of("abcdefghijklmnopqrstuvwxyzBFIRW");
    const OpRow* row = find_row(numbers.substr(0, letters));
    if (row == nullptr) return fail(token, "no such op");
    numbers.remove_prefix(row->token.size());
    op.kind = row->kind;
    if (op.kind == OpKind::kWait && !take_until(numbers, '@').empty())
      return fail(token, "expected @ and a number");
    if (!own_numbers(*row, numbers, op)) return fail(token, "wrong numbers for this op");
    op.group = usual_group(program_.step, op);
    if (!other_group(token, group, op) || !other_numbers(*row, extras, op))
      return fail(token, "wrong end of this op");
    return true;
  }

  bool own_numbers(const OpRow& row, std::string_view text, Op& op) const {
    for (int i = 0; i < kNumOpFields; ++i) {
      if (!row.uses[i]) continue;
      std::string_view number = take_until(text, '.');
      const bool experts = kOpFields[i].member == &Op::unit && number.ends_with('e');
      if (experts) number.remove_suffix(1);
      if (!parse_number(number, op.*kOpFields[i].member)) return false;
      if (experts) op.unit += program_.step.units();
    }
    return text.empty();
  }

  bool other_group(std::string_view token, std::string_view text, Op& op) const {
    const std::string_view before_extras = token.substr(0, token.find('+'));
    if (before_extras.find(':') == std::string_view::npos) return true;
    const auto group = parse_group(text);
    if (!group || *group == op.group) return false;
    op.group = *group;
    return true;
  }

  static bool other_numbers(const OpRow& row, std::string_view text, Op& op) {
    while (!text.empty()) {
      std::string_view number = take_until(text, '+');
      const std::string_view name = take_until(number, '=');
      bool is_known = false;
      for (int i = 0; i < kNumOpFields; ++i)
        if (!row.uses[i] && kOpFields[i].name == name)
          is_known = parse_number(number, op.*kOpFields[i].member);
      if (!is_known) return false;
    }
    return true;
  }

  std::string_view rest_;
  std::string_view line_;
  int line_number_ = 0;
  Program program_;
  Error failure_;
};

}  // namespace

std::string to_text(const Program& program) {
  std::string text = std::string(kFirstLine) + "\n";
  append_step(text, program.step);
  append_transfers(text, program);
  for (std::size_t coord = 0; coord < program.lists.size(); ++coord) {
    text += std::to_string(coord) + ":";
    for (const Op& op : program.lists[coord]) text += " " + op_token(program.step, op);
    text += '\n';
  }
  return text;
}

Result<Program> parse_program(std::string_view text) { return Parser(text).parse(); }

}  // namespace lockstep::program
