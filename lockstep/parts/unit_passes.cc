#include "lockstep/parts/unit_passes.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/parts/families.h"
#include "lockstep/parts/keep.h"
#include "lockstep/parts/lower.h"
#include "lockstep/parts/overlap.h"
#include "lockstep/parts/read_pass.h"
#include "lockstep/parts/validate.h"

namespace lockstep::parts {
namespace {

std::vector<ValueId> with(std::vector<ValueId> ids, ValueId more) {
  if (more != kNoValue && std::ranges::find(ids, more) == ids.end()) ids.push_back(more);
  return ids;
}

// What a policy of the run file drops, by name; with it go slices of it, what overwrites them and
// where they are moved.
std::vector<ValueId> dropped_by(const model::Drop& drop, const Written& forward) {
  std::vector<ValueId> ids;
  const auto is_dropped = [&](ValueId id) { return std::ranges::count(ids, id) > 0; };
  for (const Part& part : forward.parts) {
    const KindRow& kind = row_of(part.kind);
    if ((kind.view || kind.moves || kind.in_place == InPlace::kEach) && is_dropped(part.in[0]))
      ids.insert(ids.end(), part.out.begin(), part.out.end());
    for (const model::DropRow& row : model::kDropRows)
      if (drop.*row.is_dropped && forward.values[part.out[0]].name == row.tensor)
        ids.push_back(part.out[0]);
  }
  return ids;
}

}  // namespace

std::int64_t extra(const MemoryEvents& events, std::int64_t gradients) {
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const MemoryEvent& event : events)
    most = std::max(most, live += event.name == kGradients ? gradients : event.bytes);
  return most;
}

std::int64_t sent(const Collective& collective) {
  const Kind kind = collective.kind;
  if (kind == Kind::kExchange || kind == Kind::kDispatch || kind == Kind::kCombine)
    return collective.bytes;
  const std::int64_t halves = kind == Kind::kAllReduce ? 2 : 1;
  return halves * (collective.bytes / collective.ranks) * (collective.ranks - 1);
}

std::int64_t sent(const std::vector<Collective>& collectives) {
  std::int64_t sum = 0;
  for (const Collective& collective : collectives) sum += sent(collective);
  return sum;
}

std::int64_t total(const std::vector<Held>& held) {
  std::int64_t sum = 0;
  for (const Held& one : held) sum += one.bytes;
  return sum;
}

UnitPasses::UnitPasses(const model::ModelConfig& config, const model::Unit& unit,
                       const model::UnitSizes& sizes)
    : sizes_(config, sizes) {
  LS_CHECK(model::check_unit_bytes(config).ok(), "no lists for ", config.name);
  const std::int64_t window = unit.attention ? unit.attention->window : 0;
  sizes_.window = window < sizes.seq * sizes.cp || sizes.caches_keys ? window : 0;
  if (sizes.caches_keys)
    write_generation(unit.kind == model::UnitKind::kEmbed ? embed_list(config)
                     : unit.kind == model::UnitKind::kBlock
                         ? block_list(config, sizes_, unit.has_experts())
                         : logits_list(config, sizes_));
  else if (unit.kind == model::UnitKind::kEmbed)
    derive(embed_list(config), {}, /*is_block=*/false);
  else if (unit.kind == model::UnitKind::kBlock)
    derive(block_list(config, sizes_, unit.has_experts()), sizes.drop, /*is_block=*/true);
  else if (unit.kind == model::UnitKind::kHead)
    write_head(config);
  else
    LS_CHECK(false, "no passes for a unit of kind ", to_text(unit.kind));
}

void UnitPasses::derive(Written forward, const model::Drop& drop, bool is_block) {
  Backward backward = differentiate(forward);
  lower(forward, &backward, sizes_);
  // An embedding has no I for which rows would be gathered: what follows it gathers them.
  const Kept split = keep(forward, backward, {dropped_by(drop, forward), false});
  const Kept whole = keep(forward, backward, {dropped_by(drop, forward), is_block});
  values_ = std::move(forward.values);
  const std::vector<ValueId> input = with({}, forward.input);

  const auto run = [&](UnitPass name, const Parts& parts, std::vector<ValueId> before,
                       std::vector<ValueId> after, const Places& from = {}) {
    add(name, place(values_, sizes_, with_waits(parts, sizes_.overlap), std::move(before),
                    std::move(after), from));
    return std::ref(passes_[static_cast<std::size_t>(name)]->pass);
  };
  const auto forwards = [&](UnitPass name, std::vector<ValueId> after) {
    const Parts parts = makers_of(after, forward.parts);
    Pass& pass = run(name, parts, input, std::move(after));
    pass.given = forward.input;
    pass.result = forward.output;
    return std::cref(pass);
  };
  const Pass& kept = forwards(UnitPass::kForward, with(split.stash, forward.output));
  forwards(UnitPass::kEvaluate, {forward.output});
  if (is_block) {
    forwards(UnitPass::kCheckpoint, with({forward.output}, forward.input));
    const Pass& again =
        run(UnitPass::kRecompute, split.recompute, input, with(split.stash, forward.input));
    for (const ValueId id : split.stash)
      LS_CHECK(again.storage(id) == kept.storage(id), values_[id].name, " is kept in two places");
  }
  const auto backwards = [&](UnitPass name, const Parts& parts, std::vector<ValueId> after) {
    Pass& pass = run(name, parts, with(split.stash, backward.d_output),
                     with(std::move(after), backward.d_input), kept.places);
    pass.given = backward.d_output;
    pass.result = backward.d_input;
    return std::cref(pass);
  };
  LS_CHECK(whole.stash == split.stash, "what is kept depends on when W runs");
  backwards(UnitPass::kBackward, as_one_list(whole.input, whole.weight), {});
  Parts halves = whole.input;
  std::ranges::copy(whole.weight, std::back_inserter(halves));
  backwards(UnitPass::kFirstBackward, halves, {});
  const Pass& half = backwards(UnitPass::kInputGrad, split.input, split.work);
  run(UnitPass::kWeightGrad, split.weight, split.work, {}, half.places);
  stash_ids_ = split.stash;
  work_ids_ = split.work;
  hold();
}

void UnitPasses::hold() {
  stash_ = held(at(UnitPass::kForward), stash_ids_);
  work_ = held(at(UnitPass::kInputGrad), work_ids_);
}

UnitPasses UnitPasses::where_met(const model::RowsMet& rows) const {
  UnitPasses met = *this;
  met.sizes_[Dim::kMet] = rows.all;
  met.sizes_.own_met = rows.own;
  for (std::optional<Made>& made : met.passes_) {
    if (!made) continue;
    made->events = memory_events(made->pass, values_, met.sizes_);
    made->collectives = read_collectives(made->pass, values_, met.sizes_);
  }
  met.hold();
  return met;
}

void UnitPasses::write_head(const model::ModelConfig& config) {
  for (const bool grad : {false, true}) {
    Written list = head_list(config, sizes_, grad, std::move(values_));
    lower(list, nullptr, sizes_);
    values_ = std::move(list.values);
    Pass pass = place(values_, sizes_, with_waits(list.parts, sizes_.overlap), {list.input},
                      with({}, list.output));
    pass.result = list.output;
    Pass taken = place(values_, sizes_, {}, {list.input}, {list.input});
    (grad ? taken : pass).given = list.input;
    add(grad ? UnitPass::kBackward : UnitPass::kEvaluate, std::move(pass));
    if (grad) add(UnitPass::kForward, std::move(taken));
  }
  stash_ = {{"input", sizes_[Dim::kP] * sizes_[Dim::kH] * sizes_.width}};
}

void UnitPasses::write_generation(Written forward) {
  LS_CHECK(sizes_.tp == 1 && sizes_.cp == 1 && sizes_.ep == 1, "keys are cached by one rank");
  for (Part& part : forward.parts)
    if (part.kind == Kind::kAttention || part.kind == Kind::kScoredAttention)
      part.kind = Kind::kCachedAttention;
  lower(forward, nullptr, sizes_);
  values_ = std::move(forward.values);
  Pass pass = place(values_, sizes_, makers_of({forward.output}, forward.parts),
                    with({}, forward.input), {forward.output});
  pass.given = forward.input;
  pass.result = forward.output;
  add(UnitPass::kGenerate, std::move(pass));
}

void UnitPasses::add(UnitPass pass, Pass made) {
  const std::string problem = validate(made, values_);
  LS_CHECK(problem.empty(), kUnitPasses.name_of(pass), ": ", problem);
  MemoryEvents events = memory_events(made, values_, sizes_);
  auto collectives = read_collectives(made, values_, sizes_);
  passes_[static_cast<std::size_t>(pass)] = {std::move(made), std::move(events),
                                             std::move(collectives)};
}

const UnitPasses::Made& UnitPasses::made(UnitPass pass) const {
  LS_CHECK(has(pass), "the unit has no ", kUnitPasses.name_of(pass));
  return *passes_[static_cast<std::size_t>(pass)];
}
const Pass& UnitPasses::at(UnitPass pass) const { return made(pass).pass; }
const MemoryEvents& UnitPasses::events(UnitPass pass) const { return made(pass).events; }
const std::vector<Collective>& UnitPasses::collectives(UnitPass pass) const {
  return made(pass).collectives;
}

UnitPasses::Meeting UnitPasses::meeting(UnitPass name, int behind) const {
  Meeting found = {"nothing", Group::kTensor};
  const Pass& pass = at(name);
  Sizes sizes = sizes_;
  for_each_part(
      pass, sizes,
      [&](std::size_t i, std::int64_t) {
        if (behind-- != 0) return;
        auto part = pass.parts.begin() + static_cast<std::ptrdiff_t>(i);
        if (part->kind == Kind::kWait)
          part = std::ranges::find(pass.parts, std::vector{part->in[0]}, &Part::out);
        const std::vector<ValueId>& of = part->out.empty() ? part->in : part->out;
        found = {join_parts("the ", to_text(part->kind), " of ", values_[of[0]].name), part->group};
      },
      [] {});
  return found;
}

std::vector<Held> UnitPasses::held(const Pass& maker, const std::vector<ValueId>& ids) const {
  std::vector<Held> all;
  std::vector<ValueId> storages;
  for (const ValueId id : ids) {
    const ValueId storage = maker.storage(id);
    const auto seen = std::ranges::find(storages, storage) - storages.begin();
    if (seen < std::ssize(storages)) {  // slices of it
      all[static_cast<std::size_t>(seen)].name = values_[storage].name;
      continue;
    }
    storages.push_back(storage);
    all.push_back({values_[id].name, sizes_.bytes(values_[storage])});
  }
  return all;
}

}  // namespace lockstep::parts
