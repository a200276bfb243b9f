#include "cli/help.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "cli/parse.h"
#include "lockstep/base/text.h"

namespace lockstep::cli {
namespace {

using HelpRow = std::pair<std::string, std::string>;  // a term and its text

class Page {
 public:
  Page(int width, bool colour) : width_(std::max(40, width)), colour_(colour) {}

  void line(const std::string& text) { out_ += text + "\n"; }
  void paragraph(const std::string& text) { out_ += wrapped(text, 0, 0, width_); }

  // A title, and two columns with a row for each of `range`: a term and its text, wrapped.
  template <class Range, class To>
  void section(const std::string& title, Range&& range, To to) {
    out_ += "\n" + painted(style::kBold, title + ":", colour_) + "\n";
    std::vector<HelpRow> rows;
    for (const auto& item : range) rows.push_back(to(item));
    std::size_t longest = 0;
    for (const auto& [term, text] : rows)
      if (term.size() <= kMaxTerm) longest = std::max(longest, term.size());
    const auto indent = static_cast<int>(longest) + 4;
    for (const auto& [term, text] : rows) {
      out_ += "  " + painted(style::kBoldCyan, term, colour_);
      const bool fits = term.size() <= longest;
      if (!fits) out_ += "\n";
      out_ += wrapped(text, indent, fits ? static_cast<int>(term.size()) + 2 : 0, width_);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static constexpr std::size_t kMaxTerm = 40;

  int width_;
  bool colour_;
  std::string out_;
};

std::string term_of(const Option& option) {
  std::string term = option.letter == 0 ? "" : strf("-%c, ", option.letter);
  term += "--" + option.name;
  if (!option.bare.empty()) return term + "[=" + option.value + "]";
  return option.value.empty() ? term : term + " " + option.value;
}

std::string text_of(const Option& option) {
  std::string text = option.help;
  if (option.repeated) text += " (may be given several times)";
  if (!option.choices.empty() && text.find(option.choices.back()) == std::string::npos) {
    text += ": ";
    for (std::size_t i = 0; i < option.choices.size(); ++i)
      text += (i == 0 ? "" : ", ") + option.choices[i];
  }
  if (!option.initial.empty()) text += " [default: " + option.initial + "]";
  if (!option.env.empty()) text += " [env: " + option.env + "]";
  return text;
}

void examples(Page& page, const std::vector<Example>& list) {
  if (list.empty()) return;
  page.section("Examples", list,
               [](const Example& example) { return HelpRow(example.command, example.what); });
}

void options(Page& page, const std::vector<Option>& list) {
  std::vector<std::string> groups;
  for (const Option& option : list)
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  for (const std::string& group : groups)
    page.section(group, std::views::filter(list, [&](const Option& o) { return o.group == group; }),
                 [](const Option& option) { return HelpRow(term_of(option), text_of(option)); });
}

void commands(Page& page, const std::vector<Verb>& verbs) {
  page.section("Commands", verbs,
               [](const Verb& verb) { return HelpRow(verb.name, verb.summary); });
}

Json to_json(const Option& option) {
  return Json::object({{"name", option.name},
                       {"value", option.value.empty() ? Json() : Json(option.value)},
                       {"default", option.initial.empty() ? Json() : Json(option.initial)},
                       {"env", option.env.empty() ? Json() : Json(option.env)},
                       {"choices", Json::list(option.choices)},
                       {"repeated", option.repeated},
                       {"help", option.help}});
}

Json to_json(const Verb& verb) {
  return Json::object(
      {{"name", verb.name},
       {"summary", verb.summary},
       {"options", Json::list(verb.options, [](const Option& option) { return to_json(option); })},
       {"positionals", Json::list(verb.positionals,
                                  [](const Positional& positional) {
                                    return Json::object({{"name", positional.name},
                                                         {"required", positional.required},
                                                         {"repeated", positional.repeated},
                                                         {"help", positional.help}});
                                  })},
       {"commands", Json::list(verb.verbs, [](const Verb& inner) { return to_json(inner); })}});
}

}  // namespace

std::string version() { return LOCKSTEP_VERSION; }

std::string main_help(const std::vector<Verb>& verbs, int width, bool colour) {
  Page page(width, colour);
  page.line("lockstep " + version() + ": trains large language models across many devices");
  std::vector<Example> list;
  for (const Verb& verb : verbs) {
    const Verb& leaf = verb.verbs.empty() ? verb : verb.verbs.front();
    if (!leaf.examples.empty()) list.push_back(leaf.examples.front());
  }
  examples(page, list);
  commands(page, verbs);
  options(page, common_options());
  page.line("\n`lockstep help COMMAND` says more about a command.");
  return page.take();
}

std::string verb_help(const Verb& verb, const std::string& path, int width, bool colour) {
  Page page(width, colour);
  page.line(verb.summary);
  if (!verb.description.empty()) {
    page.line("");
    page.paragraph(verb.description);
  }
  examples(page, verb.examples);
  page.line("\nUsage: " + usage(verb, path));
  if (!verb.verbs.empty()) commands(page, verb.verbs);
  if (!verb.positionals.empty())
    page.section("Arguments", verb.positionals, [](const Positional& positional) {
      return HelpRow(positional.name + (positional.repeated ? "..." : ""), positional.help);
    });
  options(page, verb.options);
  options(page, common_options());
  return page.take();
}

Json help_json(const std::vector<Verb>& verbs) {
  return Json::object(
      {{"schema", "lockstep.help/1"},
       {"version", version()},
       {"options",
        Json::list(common_options(), [](const Option& option) { return to_json(option); })},
       {"commands", Json::list(verbs, [](const Verb& verb) { return to_json(verb); })}});
}

}  // namespace lockstep::cli
