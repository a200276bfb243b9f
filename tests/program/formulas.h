// What a program computes, apart from when.
#pragma once

#include <map>
#include <set>
#include <string>

#include "lockstep/base/hash.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/text.h"

namespace lockstep::program {

// What a coordinate computes, as formulas: each value is the hash of the op that made it and of
// what the op read. Equal formulas for all that outlives the step and all that is sent mean equal
// bits, whatever the order of the list. The loss alone is an exact sum, so it is the set of its
// summands.
class Formulas {
 public:
  Formulas(const Program& program, Coord coord) : program_(program), coord_(coord) {
    for (const Value& value : persistent(program.step, coord)) now_[value] = to_text(value);
    for (const Op& op : program.list(coord)) run(op);
  }

  std::map<std::string, std::string> results() const {
    std::map<std::string, std::string> results = sent_;
    for (const auto& [value, formula] : now_) results[to_text(value)] = formula;
    return results;
  }

 private:
  std::string name(const Op& op) const {
    if (op.kind != OpKind::kWait) return op_token(program_.step, op);
    return "wait " + name(program_.list(coord_)[static_cast<std::size_t>(op.target)]);
  }

  void run(const Op& op) {
    const Effects fx = effects(program_, coord_, op);
    std::string formula = name(op);
    for (const Value& value : fx.reads) formula += "," + now_[value];
    for (const Value& value : fx.mutates)
      if (value.kind != ValueKind::kLoss) formula += "," + now_[value];
    if (op.kind == OpKind::kSend) sent_[name(op)] = formula;
    for (const Value& value : fx.kills) now_.erase(value);
    for (const auto* made : {&fx.defines, &fx.mutates})
      for (const Value& value : *made) now_[value] = to_hex(xxh3_128(formula + to_text(value)));
    for (const Value& value : fx.mutates)
      if (value.kind == ValueKind::kLoss) now_[value] = with_summand(formula);
  }

  std::string with_summand(const std::string& formula) {
    losses_.insert(formula);
    std::string all;
    for (const std::string& loss : losses_) all += loss + ";";
    return to_hex(xxh3_128(all));
  }

  const Program& program_;
  Coord coord_;
  std::map<Value, std::string> now_;
  std::map<std::string, std::string> sent_;
  std::multiset<std::string> losses_;
};

}  // namespace lockstep::program
