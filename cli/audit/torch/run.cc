// lockstep audit: computes the step of a dump on one rank, compares, looks for an explanation.
#include <cmath>
#include <string>
#include <utility>

#include "cli/audit/torch/report.h"
#include "cli/engine.h"
#include "lockstep/audit/dump.h"
#include "lockstep/audit/explain.h"
#include "lockstep/audit/reference/reference.h"
#include "lockstep/audit/step.h"
#include "lockstep/tensor/strict_kernels.h"

namespace lockstep::cli {
namespace {

// Of gradients of single samples that are kept to explain a difference.
constexpr double kMostBytes = 8e9;

std::vector<SaidCheck> said_of(const audit::Dump& dump, const audit::Step& truth,
                               const audit::Bounds& bounds) {
  std::vector<SaidCheck> checks;
  const auto live = static_cast<double>(dump.live());
  double squares = 0;
  for (const audit::Tensor& tensor : dump.gradients)
    squares += std::pow(audit::norm_of(tensor.values), 2);
  const audit::Said& said = dump.said;
  if (said.tokens) checks.push_back({"tokens", static_cast<double>(*said.tokens), live, 0});
  if (said.loss_sum)
    checks.push_back({"sum of losses", *said.loss_sum, truth.loss * live, bounds.loss});
  if (said.loss) checks.push_back({"loss", *said.loss, truth.loss, bounds.loss});
  if (said.grad_norm)
    checks.push_back(
        {"gradient norm", *said.grad_norm, std::sqrt(squares), bounds.grad_norm, true});
  return checks;
}

double sample_bytes(const audit::Dump& dump) {
  double elements = 0;
  for (const audit::Tensor& tensor : dump.gradients)
    elements += static_cast<double>(tensor.values.size());
  return elements * 8 * static_cast<double>(dump.samples.size());
}

// Computes what hypotheses are made of, and fills in what explains a difference.
Result<void> find_explanations(const audit::Reference& reference, DType dtype,
                               audit::Evidence& evidence, AuditFindings& found) {
  const audit::Dump& dump = evidence.dump;
  if (sample_bytes(dump) > kMostBytes) {
    found.unexplained = strf(
        "not looked for: gradients of single samples take %.0f GB, and %.0f "
        "are the most; audit a smaller model, or fewer samples",
        sample_bytes(dump) / 1e9, kMostBytes / 1e9);
    return {};
  }
  evidence.samples = LS_TRY(reference.samples(dtype));
  for (const int by : {1, -1})
    if (auto moved = LS_TRY(reference.with_labels_moved(dtype, by)))
      evidence.moved.emplace_back(by, *std::move(moved));
  evidence.ends = LS_TRY(reference.untied(dtype));
  evidence.shares = reference.shares(dtype, dump.degree("tp"));
  if (!found.gradients_are_right()) found.explained = audit::explain(evidence);
  for (SaidCheck& check : found.said) {
    if (check.is_right()) continue;
    const std::string name = check.name;
    if (name == "loss" || name == "sum of losses")
      check.explained = audit::explain_loss(
          evidence, name == "loss" ? check.said : check.said / static_cast<double>(dump.live()));
    if (name == "gradient norm") check.explained = audit::explain_norm(evidence, check.said);
  }
  return {};
}

// Whether the gradients are right for passes in bf16, which the dump does not speak of.
Result<void> try_narrow(const audit::Reference& reference, const audit::Step& truth,
                        AuditFindings& found) {
  const audit::Dump& dump = found.dump;
  const bool is_explained = !found.explained.empty() && found.explained.front().fitted == 0;
  if (dump.compute == DType::kBF16 || is_explained) return {};
  const audit::Step narrow = LS_TRY(reference.step(DType::kBF16));
  const auto compared = audit::compare(dump, truth, audit::bounds_of(dump, truth, narrow));
  if (!std::ranges::all_of(compared, &audit::Compared::is_right)) return {};
  found.explained.insert(
      found.explained.begin(),
      {"passes in bf16, which the dump does not say: Audit(compute=torch.bfloat16)"});
  return {};
}

}  // namespace

Result<ExitCode> run_audit(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  const audit::Dump dump = LS_TRY(audit::read_dump(args.text("DUMP")));
  const DType dtype = *parse_dtype(args.text("dtype"));
  if (dump.compute == DType::kF64 && dtype == DType::kF32)
    return Error{Code::kConflict, "--dtype f32 cannot say whether passes in f64 are right",
                 "leave it out"};
  const audit::Reference reference(dump);
  const audit::Step truth = LS_TRY(reference.step(dtype));
  const audit::Step own = LS_TRY(reference.step(dump.compute));
  const audit::Bounds bounds = audit::bounds_of(dump, truth, own);
  AuditFindings found = {dump, truth, audit::compare(dump, truth, bounds)};
  found.said = said_of(dump, truth, bounds);
  if (!found.is_right() && !args.flag("no-explain")) {
    audit::Evidence evidence = {dump, truth, bounds};
    LS_TRY(find_explanations(reference, dtype, evidence, found));
    if (!found.gradients_are_right()) LS_TRY(try_narrow(reference, truth, found));
  } else if (!found.is_right()) {
    found.unexplained = "not looked for (--no-explain)";
  }
  print_audit(found, args, output);
  return found.is_right() ? ExitCode::kOk : ExitCode::kCheckFailed;
}

}  // namespace lockstep::cli
