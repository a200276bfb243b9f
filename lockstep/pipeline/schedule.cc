#include "lockstep/pipeline/schedule.h"

#include <bit>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::pipeline {
namespace {

constexpr std::int64_t kMaxStagePasses = std::int64_t{1} << 24;

Error out_of_range(std::string message, std::string help) {
  return {Code::kOutOfRange, std::move(message), std::move(help)};
}

constexpr std::uint8_t bit(PassKind kind) {
  return static_cast<std::uint8_t>(1u << static_cast<int>(kind));
}

constexpr std::uint8_t kF = bit(PassKind::kForward), kB = bit(PassKind::kBackward),
                       kI = bit(PassKind::kInputGrad), kW = bit(PassKind::kWeightGrad);

PassKind lowest_kind(std::uint8_t bits) { return static_cast<PassKind>(std::countr_zero(bits)); }

// Finds the first reason to refuse a timetable.
class Inspection {
 public:
  Inspection(const Shape& shape, Placement placement, const Timetable& timetable)
      : shape_(shape),
        placement_(placement),
        timetable_(timetable),
        listed_(shape.stages() * shape.microbatches) {}

  std::optional<ScheduleFault> fault() {
    if (auto found = misplaced_or_doubled()) return found;
    if (auto found = missing()) return found;
    if (auto found = out_of_order()) return found;
    return never_ready();
  }

 private:
  using Kinds = std::uint8_t;  // a set of PassKind

  static ScheduleFault refuse(const Pass& pass, std::string message, std::string help = "") {
    return {{Code::kBadSchedule, std::move(message), std::move(help)}, pass};
  }

  Coord home(Stage stage) const { return coord_of(placement_, stage, shape_.coords); }
  bool in_range(const Pass& pass) const {
    return pass.stage.value >= 0 && pass.stage.value < shape_.stages() &&
           pass.microbatch.value >= 0 && pass.microbatch.value < shape_.microbatches;
  }

  std::optional<ScheduleFault> misplaced_or_doubled() {
    for (std::size_t coord = 0; coord < timetable_.size(); ++coord)
      for (const Pass& pass : timetable_[coord])
        if (auto found = enter(pass, static_cast<int>(coord))) return found;
    return std::nullopt;
  }

  std::optional<ScheduleFault> enter(const Pass& pass, int coord) {
    const auto name = [&] {
      return join_parts("pass ", to_text(pass), " of pipeline rank ", coord);
    };
    if (!in_range(pass))
      return refuse(pass, join_parts(name(), " is outside ", shape_.stages(), " stages and ",
                                     shape_.microbatches, " microbatches"));
    if (home(pass.stage).value != coord)
      return refuse(pass, join_parts(name(), " belongs to pipeline rank ", home(pass.stage).value));
    Kinds& kinds = listed_[shape_.index(pass.stage, pass.microbatch)];
    if ((kinds & bit(pass.kind)) != 0) return refuse(pass, name() + " is there twice");
    kinds |= bit(pass.kind);
    if ((kinds & kB) != 0 && (kinds & (kI | kW)) != 0)
      return refuse(pass, name() + " makes a second backward pass",
                    "a backward pass is B, or I and later W");
    return std::nullopt;
  }

  std::optional<ScheduleFault> missing() const {
    for (int stage = 0; stage < shape_.stages(); ++stage)
      for (int mb = 0; mb < shape_.microbatches; ++mb) {
        const Kinds kinds = listed_[shape_.index({stage}, {mb})];
        const Kinds wanted = (kinds & (kI | kW)) != 0 ? kF | kI | kW : kF | kB;
        const Kinds absent = static_cast<Kinds>(wanted & ~kinds);
        if (absent == 0) continue;
        const Pass pass = {lowest_kind(absent), {stage}, {mb}};
        return refuse(pass, "pass " + to_text(pass) + " is missing");
      }
    return std::nullopt;
  }

  // Input gradients and weight gradients each come in microbatch order, whether alone or in B.
  std::optional<ScheduleFault> out_of_order() const {
    for (const Kinds track : {Kinds{kI | kB}, Kinds{kW | kB}}) {
      std::vector<int> expected(shape_.stages());
      for (const auto& passes : timetable_)
        for (const Pass& pass : passes) {
          if ((bit(pass.kind) & track) == 0) continue;
          int& next = expected[pass.stage.value];
          if (pass.microbatch.value != next++)
            return refuse(pass, "pass " + to_text(pass) + " is out of microbatch order",
                          "gradients of a stage are added in ascending microbatch order, so that "
                          "every schedule adds alike");
        }
    }
    return std::nullopt;
  }

  // What `pass` waits for among the passes not `done`; nothing when it is ready.
  std::optional<Pass> awaited(const Pass& pass, const std::vector<Kinds>& done) const {
    const auto lacks = [&](Stage stage, Kinds kinds) -> std::optional<Pass> {
      const int at = shape_.index(stage, pass.microbatch);
      if ((done[at] & kinds) != 0) return std::nullopt;
      return Pass{lowest_kind(static_cast<Kinds>(listed_[at] & kinds)), stage, pass.microbatch};
    };
    const Stage before = {pass.stage.value - 1}, after = {pass.stage.value + 1};
    if (pass.kind == PassKind::kForward) return before.value < 0 ? std::nullopt : lacks(before, kF);
    if (pass.kind == PassKind::kWeightGrad) return lacks(pass.stage, kI);
    if (auto own = lacks(pass.stage, kF)) return own;
    return after.value == shape_.stages() ? std::nullopt : lacks(after, kB | kI);
  }

  // One topological pass: each pipeline rank runs until it waits, and is looked at again when a
  // neighbour has done what it may have waited for.
  std::optional<ScheduleFault> never_ready() const {
    std::vector<Kinds> done(listed_.size());
    std::vector<std::size_t> next(timetable_.size());
    std::vector<Coord> runnable;
    for (int coord = shape_.coords - 1; coord >= 0; --coord) runnable.push_back({coord});
    while (!runnable.empty()) {
      const int coord = runnable.back().value;
      runnable.pop_back();
      for (; next[coord] < timetable_[coord].size(); ++next[coord]) {
        const Pass& pass = timetable_[coord][next[coord]];
        if (awaited(pass, done)) break;
        done[shape_.index(pass.stage, pass.microbatch)] |= bit(pass.kind);
        const int neighbour = pass.stage.value + (pass.kind == PassKind::kForward ? 1 : -1);
        if (neighbour >= 0 && neighbour < shape_.stages()) runnable.push_back(home({neighbour}));
      }
    }
    for (std::size_t coord = 0; coord < timetable_.size(); ++coord)
      if (next[coord] < timetable_[coord].size()) return circle(coord, next, done);
    return std::nullopt;
  }

  // Follows from a stuck pipeline rank who waits for whom, until the waits come back to one that
  // they have passed, and tells that circle. Every pipeline rank on the way is stuck at `next`.
  ScheduleFault circle(std::size_t coord, const std::vector<std::size_t>& next,
                       const std::vector<Kinds>& done) const {
    const auto stuck = [&](std::size_t at) -> const Pass& { return timetable_[at][next[at]]; };
    const auto follow = [&](std::size_t at) {
      return static_cast<std::size_t>(home(awaited(stuck(at), done)->stage).value);
    };
    std::vector<bool> is_passed(timetable_.size());
    for (; !is_passed[coord]; coord = follow(coord)) is_passed[coord] = true;
    std::string text = "pass " + to_text(stuck(coord)) + " of pipeline rank " +
                       std::to_string(coord) + " can never run: it waits for ";
    std::size_t at = coord;
    do {
      const Pass needed = *awaited(stuck(at), done);
      if (at != coord) text += ", which waits for ";
      at = follow(at);
      text += to_text(needed);
      if (needed == stuck(at)) continue;
      text += ", which pipeline rank " + std::to_string(at) + " has behind " + to_text(stuck(at));
    } while (at != coord);
    return refuse(stuck(coord), std::move(text),
                  "one of these passes must come earlier in its list");
  }

  const Shape& shape_;
  Placement placement_;
  const Timetable& timetable_;
  std::vector<Kinds> listed_;  // per stage and microbatch
};

}  // namespace

Result<void> check_shape(const Shape& shape) {
  const std::pair<const char*, int> fields[] = {{"pipeline ranks", shape.coords},
                                                {"virtual stages", shape.chunks},
                                                {"microbatches", shape.microbatches}};
  std::int64_t passes = 1;
  for (const auto& [name, value] : fields) {
    if (value < 1)
      return out_of_range(join_parts(name, " = ", value, " is less than 1"), "give at least 1");
    passes *= value;
    if (passes > kMaxStagePasses)
      return out_of_range(join_parts("pp x vpp x microbatches is more than ", kMaxStagePasses),
                          "use fewer microbatches");
  }
  return {};
}

std::optional<ScheduleFault> find_fault(const Shape& shape, Placement placement,
                                        const Timetable& timetable) {
  if (Result<void> usable = check_shape(shape); !usable.ok())
    return ScheduleFault{usable.error(), std::nullopt};
  if (timetable.size() != static_cast<std::size_t>(shape.coords))
    return ScheduleFault{{Code::kBadSchedule,
                          join_parts("there are ", timetable.size(), " lists of passes for ",
                                     shape.coords, " pipeline ranks"),
                          "give one list per pipeline rank"},
                         std::nullopt};
  return Inspection(shape, placement, timetable).fault();
}

Result<Schedule> Schedule::create(Shape shape, Placement placement, Timetable timetable) {
  if (auto found = find_fault(shape, placement, timetable)) return std::move(found->error);
  return Schedule(shape, placement, std::move(timetable));
}

std::span<const Pass> Schedule::passes(Coord coord) const {
  LS_CHECK(coord.value >= 0 && coord.value < shape_.coords, "pipeline rank ", coord.value, " of ",
           shape_.coords);
  return timetable_[coord.value];
}

std::string to_text(const Pass& pass) {
  return std::to_string(pass.stage.value) + "FBIW"[static_cast<int>(pass.kind)] +
         std::to_string(pass.microbatch.value);
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (int coord = 0; coord < schedule.shape().coords; ++coord) {
    const char* mark = "";
    for (const Pass& p : schedule.passes({coord})) text += std::exchange(mark, ",") + to_text(p);
    text += '\n';
  }
  return text;
}

}  // namespace lockstep::pipeline
