#include "lockstep/program/text.h"

#include <cstdint>
#include <vector>

#include "lockstep/program/op_table.h"

namespace lockstep::program {
namespace {

std::string without_wait_text(const Program& program, const Op& op) {
  const OpRow& row = op_row(op.kind);
  std::string text(row.words);
  if (op.kind == OpKind::kSend || op.kind == OpKind::kPostRecv) {
    if (op.transfer < 0 || op.transfer >= std::ssize(program.transfers))
      return text + " of transfer " + std::to_string(op.transfer);
    const Transfer& transfer = program.transfers[op.transfer];
    const bool is_send = op.kind == OpKind::kSend;
    return text + " of " + transfer_text(transfer) +
           (is_send ? ", to pipeline rank " : ", from pipeline rank ") +
           std::to_string(is_send ? transfer.to.value : transfer.from.value);
  }
  const char* separator = " of ";
  for (int i = 0; i < kNumOpFields; ++i) {
    if (!row.uses[i]) continue;
    const bool is_unit = kOpFields[i].member == &Op::unit;
    if (is_unit && program.step.is_experts(op.unit)) text.append(" of experts");
    text.append(separator).append(kOpFields[i].name).append(" ");
    text += std::to_string(is_unit ? program.step.unit_of(op.unit) : op.*kOpFields[i].member);
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
    add(std::ssize(numbers));
    for (const auto number : numbers) add(number);
  }
  void add(const Op& op) {
    add(static_cast<std::int64_t>(op.kind) << 8 | static_cast<std::int64_t>(op.group));
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

std::string op_token(const StepShape& step, const Op& op) {
  const OpRow& row = op_row(op.kind);
  std::string text(row.token);
  const char* separator = op.kind == OpKind::kWait ? "@" : "";
  for (int i = 0; i < kNumOpFields; ++i) {
    if (!row.uses[i]) continue;
    const bool is_unit = kOpFields[i].member == &Op::unit;
    text.append(separator);
    text += std::to_string(is_unit ? step.unit_of(op.unit) : op.*kOpFields[i].member);
    if (is_unit && step.is_experts(op.unit)) text.append("e");
    separator = ".";
  }
  if (op.group != usual_group(step, op)) text.append(":").append(to_text(op.group));
  for (int i = 0; i < kNumOpFields; ++i) {
    const std::int32_t number = op.*kOpFields[i].member;
    if (row.uses[i] || number == -1) continue;
    text.append("+").append(kOpFields[i].name).append("=").append(std::to_string(number));
  }
  return text;
}

std::string transfer_text(const Transfer& transfer) {
  return (transfer.is_grad ? "gradient of unit " : "output of unit ") +
         std::to_string(transfer.unit) + ", microbatch " + std::to_string(transfer.microbatch);
}

std::string op_text(const Program& program, Coord coord, const Op& op) {
  if (op.kind != OpKind::kWait) return without_wait_text(program, op);
  const auto& list = program.list(coord);
  if (op.target < 0 || op.target >= std::ssize(list) || list[op.target].kind == OpKind::kWait)
    return "wait for op " + std::to_string(op.target);
  return "wait for " + without_wait_text(program, list[op.target]);
}

Hash128 program_hash(const Program& program) {
  Digest digest;
  add_step(digest, program.step);
  digest.add(std::ssize(program.transfers));
  for (const Transfer& t : program.transfers)
    for (int number : {int{t.is_grad}, t.unit, t.microbatch, t.from.value, t.to.value})
      digest.add(number);
  digest.add(std::ssize(program.lists));
  for (const std::vector<Op>& list : program.lists) {
    digest.add(std::ssize(list));
    for (const Op& op : list) digest.add(op);
    digest.flush();
  }
  if (program.step.tensor_parallel || !program.step.partial.empty()) {  // others keep their hashes
    digest.add(int{program.step.tensor_parallel});
    digest.add_all(program.step.partial);
  }
  if (program.step.noise) digest.add(1);
  if (program.step.checks) digest.add(3);
  if (!program.step.experts.empty()) {
    digest.add(2);
    digest.add_all(program.step.experts);
    digest.add(program.step.routed);
  }
  return digest.finish();
}

}  // namespace lockstep::program
