// What makes two runs the same training, besides their model and layout: the keys of [batch] and
// [train] that decide what is computed, and how weights are drawn. Checkpoints and the agreement of
// ranks both read this one table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/spec/spec.h"

namespace lockstep::spec {

struct IdentityKey {
  std::string_view path;  // "train.lr_decay"; of the ramp, the key that turns it on
  // What a checkpoint calls it ("decay"). Empty: a checkpoint may go on with another value, but the
  // ranks of a job share one.
  std::string_view fact;
  std::string (*text)(const Spec& spec);
  // Whether the value decides nothing in this run; null: never.
  bool (*is_idle)(const Spec& spec) = nullptr;
  bool may_change = false;  // where a run is resumed that says so
};

// Their order is that of the facts in a checkpoint, whose digest depends on it: new rows go to the
// end.
std::span<const IdentityKey> identity_keys();

// "steps" for train.steps: the names of those that may change.
std::vector<std::string> changeable();
// The key of such a name, or of its path; null where there is none.
const IdentityKey* find_changeable(std::string_view name);

using Facts = std::vector<std::pair<std::string, std::string>>;

// What is not idle, by IdentityKey::fact what a checkpoint holds, by IdentityKey::path all of it.
Facts identity(const Spec& spec, std::string_view IdentityKey::* name);

}  // namespace lockstep::spec
