#include "lockstep/schedule/text.h"

#include <cstdint>
#include <vector>

#include "lockstep/schedule/inventory.h"
#include "lockstep/schedule/op_table.h"

namespace lockstep::schedule {
namespace {

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
  append_line(text, "placement", step.placement == Placement::kLoop ? "loop" : "v");
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

void append_token(std::string& text, const StepShape& step, const Op& op) {
  const OpRow& row = op_row(op.kind);
  text += row.token;
  const char* separator = op.kind == OpKind::kWait ? "@" : "";
  for (int i = 0; i < kNumOpFields; ++i) {
    if (!row.uses[i]) continue;
    text.append(separator).append(std::to_string(op.*kOpFields[i].member));
    separator = ".";
  }
  if (op.reach != usual_reach(step, op.kind)) text.append(":").append(to_text(op.reach));
  for (int i = 0; i < kNumOpFields; ++i) {
    const std::int32_t number = op.*kOpFields[i].member;
    if (row.uses[i] || number == -1) continue;
    text.append("+").append(kOpFields[i].name).append("=").append(std::to_string(number));
  }
}

std::string without_wait_text(const Program& program, const Op& op) {
  const OpRow& row = op_row(op.kind);
  std::string text(row.words);
  if (op.kind == OpKind::kSend || op.kind == OpKind::kPostRecv) {
    const auto at = static_cast<std::size_t>(op.transfer);
    if (op.transfer < 0 || at >= program.transfers.size())
      return text + " of transfer " + std::to_string(op.transfer);
    const Transfer& transfer = program.transfers[at];
    const bool is_send = op.kind == OpKind::kSend;
    return text + " of " + transfer_text(transfer) +
           (is_send ? ", to coordinate " : ", from coordinate ") +
           std::to_string(is_send ? transfer.to.value : transfer.from.value);
  }
  const char* separator = " of ";
  for (int i = 0; i < kNumOpFields; ++i) {
    if (!row.uses[i]) continue;
    text.append(separator).append(kOpFields[i].name).append(" ");
    text += std::to_string(op.*kOpFields[i].member);
    separator = ", ";
  }
  return text;
}

// Little-endian 32-bit words, every sequence with its length before it.
class Digest {
 public:
  void add(std::int64_t number) {
    for (int byte = 0; byte < 4; ++byte)
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(number) >> (8 * byte)));
  }
  template <class Range>
  void add_all(const Range& numbers) {
    add(static_cast<std::int64_t>(numbers.size()));
    for (const auto number : numbers) add(number);
  }
  void add(const Op& op) {
    add(static_cast<std::int64_t>(op.kind) << 8 | static_cast<std::int64_t>(op.reach));
    for (const OpField& field : kOpFields) add(op.*field.member);
  }
  void flush() {
    hash_.update(bytes_);
    bytes_.clear();
  }
  Hash128 finish() {
    flush();
    return hash_.digest128();
  }

 private:
  std::vector<std::byte> bytes_;
  Xxh3 hash_;
};

void add_step(Digest& digest, const StepShape& step) {
  for (int number : {step.shape.coords, step.shape.chunks, step.shape.microbatches,
                     static_cast<int>(step.placement), step.zero, static_cast<int>(step.period),
                     int{step.replicas}, int{step.tied}, step.resident_units, step.prefetch,
                     int{step.forward_only}})
    digest.add(number);
  digest.add_all(step.stage_begin);
  digest.add_all(step.recompute);
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text = "lockstep program 1\n";
  append_step(text, program.step);
  append_transfers(text, program);
  for (std::size_t coord = 0; coord < program.lists.size(); ++coord) {
    text += std::to_string(coord) + ":";
    for (const Op& op : program.lists[coord]) {
      text += ' ';
      append_token(text, program.step, op);
    }
    text += '\n';
  }
  return text;
}

std::string op_token(const StepShape& step, const Op& op) {
  std::string text;
  append_token(text, step, op);
  return text;
}

std::string transfer_text(const Transfer& transfer) {
  return (transfer.is_grad ? "gradient of unit " : "output of unit ") +
         std::to_string(transfer.unit) + ", microbatch " + std::to_string(transfer.microbatch);
}

std::string op_text(const Program& program, Coord coord, const Op& op) {
  if (op.kind != OpKind::kWait) return without_wait_text(program, op);
  const auto& list = program.list(coord);
  const auto at = static_cast<std::size_t>(op.target);
  if (op.target < 0 || at >= list.size() || list[at].kind == OpKind::kWait)
    return "wait for op " + std::to_string(op.target);
  return "wait for " + without_wait_text(program, list[at]);
}

Hash128 program_hash(const Program& program) {
  Digest digest;
  add_step(digest, program.step);
  digest.add(static_cast<std::int64_t>(program.transfers.size()));
  for (const Transfer& t : program.transfers)
    for (int number : {int{t.is_grad}, t.unit, t.microbatch, t.from.value, t.to.value})
      digest.add(number);
  digest.add(static_cast<std::int64_t>(program.lists.size()));
  for (const std::vector<Op>& list : program.lists) {
    digest.add(static_cast<std::int64_t>(list.size()));
    for (const Op& op : list) digest.add(op);
    digest.flush();
  }
  if (program.step.tensor_parallel || !program.step.partial.empty()) {  // others keep their hashes
    digest.add(int{program.step.tensor_parallel});
    digest.add_all(program.step.partial);
  }
  if (program.step.noise) digest.add(1);
  return digest.finish();
}

}  // namespace lockstep::schedule
