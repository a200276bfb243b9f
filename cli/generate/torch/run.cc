// lockstep generate: reads a model, goes on from every prompt, prints text as it comes.
#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/engine.h"
#include "cli/generate/request.h"
#include "cli/ranks.h"
#include "lockstep/generate/decoder.h"
#include "lockstep/generate/generate.h"
#include "lockstep/generate/text_stream.h"
#include "lockstep/tensor/strict_kernels.h"

namespace lockstep::cli {
namespace {

using generate::Ending;
using generate::Generated;

constexpr std::int64_t kMaxTokens = 256;

struct Answer {
  Generated made;
  std::string text;
};

// Prompts and answers as they come, or at the end as JSON.
class Teller {
 public:
  Teller(const std::vector<Prompt>& prompts, bool has_text, Output& output)
      : prompts_(prompts), has_text_(has_text), output_(output) {}

  void prompt(std::size_t index) {
    if (output_.json) return;
    if (prompts_.size() > 1)
      output_.out << output_.paint(style::kBold, join_parts(index > 0 ? "\n" : "", "prompt ",
                                                            index + 1, " of ", prompts_.size()))
                  << "\n";
    if (!has_text_) return;
    output_.out << output_.paint(style::kDim, shown(prompts_[index].text)) << std::flush;
  }
  void token(std::int64_t token, bool is_first, const std::string& text) {
    if (output_.json) return;
    if (has_text_)
      output_.out << shown(text) << std::flush;
    else
      output_.out << (is_first ? "" : " ") << token << std::flush;
  }
  void answer(Answer answer, const std::string& rest) {
    if (!output_.json) {
      output_.out << shown(rest) << "\n" << std::flush;
      output_.err << painted(style::kDim, measured(answer.made, prompt_ids()), output_.err_colour)
                  << "\n";
    }
    answers_.push_back(std::move(answer));
  }

  Json json() const {
    Json list = Json::array();
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      const auto& [made, text] = answers_[i];
      list.push(Json::object({{"prompt", has_text_ ? Json(prompts_[i].text) : Json()},
                              {"prompt_ids", Json::list(prompts_[i].ids)},
                              {"text", has_text_ ? Json(text) : Json()},
                              {"ids", Json::list(made.tokens)},
                              {"ended_by", to_text(made.ending)},
                              {"prompt_seconds", made.prompt_time.value},
                              {"seconds", made.time.value}}));
    }
    return list;
  }

 private:
  std::size_t prompt_ids() const { return prompts_[answers_.size()].ids.size(); }
  static std::string measured(const Generated& made, std::size_t prompt) {
    const auto behind = std::ssize(made.tokens) - 1;
    std::string text =
        join_parts("(", counted(prompt, "token"), " of prompt in ", to_text(made.prompt_time), ", ",
                   counted(std::ssize(made.tokens), "token"));
    if (behind > 0) text += strf(", %.3g a second", static_cast<double>(behind) / made.time.value);
    return join_parts(text, "; ended by ", to_text(made.ending), ")");
  }

  const std::vector<Prompt>& prompts_;
  const bool has_text_;
  Output& output_;
  std::vector<Answer> answers_;
};

generate::Sampling sampling_of(const Args& args) {
  return {.temperature = args.real("temperature"),
          .top_k = args.has("top-k") ? args.integer("top-k") : 0,
          .top_p = args.has("top-p") ? args.real("top-p") : 1.0,
          .seed = static_cast<std::uint64_t>(args.has("seed") ? args.integer("seed") : 0)};
}

Result<std::vector<generate::Request>> requests_of(const Args& args,
                                                   const std::vector<Prompt>& prompts,
                                                   const Tokenizer* tokenizer,
                                                   const model::ModelConfig& model) {
  if (args.has("top-k") && args.integer("top-k") > model.vocab)
    return Error{Code::kOutOfRange,
                 join_parts("--top-k is ", args.integer("top-k"), ", and the vocabulary has ",
                            model.vocab, " tokens"),
                 join_parts("at most ", model.vocab, "; without it all are drawn from")};
  std::vector<generate::Request> requests;
  for (const Prompt& prompt : prompts) {
    const std::int64_t room = model.max_positions - std::ssize(prompt.ids);
    generate::Request request = {.prompt = prompt.ids, .max_tokens = std::min(kMaxTokens, room)};
    if (args.has("max-tokens")) request.max_tokens = args.integer("max-tokens");
    if (tokenizer != nullptr) {
      request.ends = tokenizer->ends;
      request.num_ids = tokenizer->num_ids;
    }
    LS_TRY(generate::check(model, request));
    requests.push_back(std::move(request));
  }
  return requests;
}

// One answer, told as it comes.
Result<void> answer(generate::Decoder& decoder, const generate::Sampler& sampler,
                    const generate::Request& request, Tokenizer* tokenizer,
                    std::vector<std::string> stops, Teller& teller) {
  generate::TextStream stream(std::move(stops));
  if (tokenizer != nullptr) LS_TRY(tokenizer->begin(request.prompt));
  bool is_first = true;
  const auto on_token = [&](std::int64_t token) -> Result<std::optional<Ending>> {
    std::string text;
    if (tokenizer != nullptr) text = stream.feed(LS_TRY(tokenizer->next(token)));
    teller.token(token, std::exchange(is_first, false), text);
    if (stream.stopped()) return std::optional(Ending::kStop);
    return stop_on_signals() ? std::optional(Ending::kInterrupted) : std::nullopt;
  };
  Generated made = LS_TRY(generate::generate(decoder, sampler, request, on_token));
  std::string rest;
  if (tokenizer != nullptr) {
    rest = stream.feed(LS_TRY(tokenizer->finish()));
    rest += stream.finish();
  }
  if (stream.stopped()) made.ending = Ending::kStop;
  teller.answer({std::move(made), stream.shown()}, rest);
  return {};
}

}  // namespace

Result<ExitCode> run_generate(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  std::vector<Prompt> prompts = LS_TRY(read_prompts(args));
  config::Report report;
  const auto weights = open_weights(args.text("MODEL"), report);
  if (!weights) return fail(output, report, args.text("MODEL"));
  const auto tokenizer = LS_TRY(open_tokenizer(args, *weights));
  if (tokenizer) LS_TRY(encode(prompts, *tokenizer));
  const auto requests = LS_TRY(requests_of(args, prompts, tokenizer.get(), weights->model.config));
  const bool is_narrow = weights->stored == DType::kF16;
  const DType dtype = args.has("dtype") ? *parse_dtype(args.text("dtype"))
                      : is_narrow       ? DType::kF32
                                        : weights->stored;
  const auto decoder = LS_TRY(generate::Decoder::load(weights->model, *weights->params, dtype));

  const std::atomic<bool>& stop = stop_on_signals();
  Teller teller(prompts, tokenizer != nullptr, output);
  for (std::size_t i = 0; i < requests.size() && !stop; ++i) {
    // Each text has draws of its own, which do not depend on other prompts.
    const generate::Sampler sampler(sampling_of(args), join_parts("generate.", i));
    teller.prompt(i);
    LS_TRY(answer(*decoder, sampler, requests[i], tokenizer.get(), args.texts("stop"), teller));
  }
  if (output.json)
    print_json(output, Json::object({{"schema", "lockstep.generate/1"},
                                     {"model", weights->path},
                                     {"dtype", to_text(dtype)},
                                     {"tokenizer", tokenizer ? Json(tokenizer->name) : Json()},
                                     {"answers", teller.json()}}));
  return stop ? ExitCode::kTerminated : ExitCode::kOk;
}

}  // namespace lockstep::cli
