#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/config/glyphs.h"

namespace lockstep::config {
namespace {

constexpr int kMaxColumns = 120;  // a longer source line is cut around its marks
constexpr int kMargin = 24;       // columns kept before the first mark of a cut line

constexpr const char* kRed = "1;31";
constexpr const char* kYellow = "1;33";
constexpr const char* kBlue = "1;34";
constexpr const char* kBold = "1";

// Messages quote what the user wrote; nothing in them may drive the terminal.
std::string printable(const std::string& text) {
  std::string out;
  const char* between = "";
  for (const std::string_view line : split(text, '\n')) {
    out += std::exchange(between, "\n");
    for (const Glyph& glyph : glyphs(line)) out += glyph.text;
  }
  return out;
}

// One label on one line, in columns as shown.
struct Mark {
  int begin = 0;
  int end = 0;  // at least begin + 1
  bool is_primary = false;
  std::string text;
};

class Snippet {
 public:
  Snippet(const Diagnostic& diagnostic, const Sources& sources, bool colour)
      : diagnostic_(diagnostic), sources_(sources), colour_(colour) {}

  std::string render() {
    head();
    if (diagnostic_.primary.span.known()) {
      places();
      row("");
    }
    for (const std::string& note : diagnostic_.notes) footer("note", note);
    if (!diagnostic_.help.empty()) footer("help", diagnostic_.help);
    footer("see", "lockstep explain " + to_text(diagnostic_.code));
    return std::move(out_);
  }

 private:
  bool is_error() const { return diagnostic_.severity == Severity::kError; }
  const char* primary_colour() const { return is_error() ? kRed : kYellow; }

  std::string paint(const char* style, const std::string& text) const {
    if (!colour_ || text.empty()) return text;
    return std::string("\x1b[") + style + "m" + text + "\x1b[0m";
  }

  void head() {
    const std::string word = is_error() ? "error" : "warning";
    out_ += paint(primary_colour(), word + "[" + to_text(diagnostic_.code) + "]");
    out_ += paint(kBold, ": " + printable(diagnostic_.message)) + "\n";
  }

  // Groups the labels by file, the primary one's first, and draws each group.
  void places() {
    std::vector<std::pair<Label, bool>> labels = {{diagnostic_.primary, true}};
    for (const Label& label : diagnostic_.secondary)
      if (label.span.known()) labels.emplace_back(label, false);
    int last = 1;
    for (const auto& [label, unused] : labels)
      if (sources_.is_file(label.span.file)) last = std::max(last, label.span.line);
    gutter_ = static_cast<int>(std::to_string(last).size());

    std::vector<std::string> files;
    for (const auto& [label, unused] : labels)
      if (std::ranges::count(files, label.span.file) == 0) files.push_back(label.span.file);
    for (const std::string& file : files) {
      const auto first =
          std::ranges::find_if(labels, [&](const auto& l) { return l.first.span.file == file; });
      place(first->first.span, file == files.front() ? "--> " : "::: ");
      group(file, labels);
    }
  }

  void place(const Span& span, const std::string& arrow) {
    std::string where = span.file;
    if (sources_.is_file(span.file)) where += strf(":%d:%d", span.line, span.column);
    if (arrow == "::: ") row("");
    out_ += std::string(gutter_, ' ') + paint(kBlue, arrow) + printable(where) + "\n";
    row("");
  }

  void group(const std::string& file, const std::vector<std::pair<Label, bool>>& labels) {
    std::set<int> lines;
    for (const auto& [label, unused] : labels)
      if (label.span.file == file) lines.insert(label.span.line);
    int previous = 0;
    for (const int line : lines) {
      if (previous != 0 && line == previous + 2) source_row(file, previous + 1, {});
      if (previous != 0 && line > previous + 2) out_ += paint(kBlue, "...") + "\n";
      std::vector<std::pair<Label, bool>> here;
      for (const auto& entry : labels)
        if (entry.first.span.file == file && entry.first.span.line == line) here.push_back(entry);
      source_row(file, line, here);
      previous = line;
    }
  }

  void source_row(const std::string& file, int line,
                  const std::vector<std::pair<Label, bool>>& labels) {
    const std::vector<Glyph> line_glyphs = glyphs(sources_.line(file, line));
    std::vector<int> starts = {0};  // column at which each code point begins
    for (const Glyph& g : line_glyphs) starts.push_back(starts.back() + g.width);
    const auto column_of = [&](int code_point) {
      const int past = code_point - static_cast<int>(line_glyphs.size());
      return past <= 0 ? starts[std::max(0, code_point)] : starts.back() + past;
    };
    std::vector<Mark> marks;
    for (const auto& [label, is_primary] : labels) {
      const int first = label.span.column - 1;
      const int begin = column_of(first);
      const int end = std::max(begin + 1, column_of(first + label.span.length));
      marks.push_back({begin, end, is_primary, printable(label.text)});
    }
    std::ranges::sort(marks, {}, &Mark::begin);
    const std::string text = cut(line_glyphs, starts, marks);
    const std::string number =
        sources_.is_file(file) ? strf("%*d", gutter_, line) : std::string(gutter_, ' ');
    out_ += paint(kBlue, number + " |") + (text.empty() ? "" : " " + text) + "\n";
    if (!marks.empty()) mark_rows(std::move(marks));
  }

  // The printable line; when it is too long, the part around the marks, which are moved to match.
  static std::string cut(const std::vector<Glyph>& line, const std::vector<int>& starts,
                         std::vector<Mark>& marks) {
    int from = 0;
    int to = starts.back();
    if (to > kMaxColumns) {
      const int first = marks.empty() ? 0 : marks.front().begin;
      const int last = marks.empty() ? 0 : marks.back().begin;
      if (last + kMargin > kMaxColumns) from = std::max(0, first - kMargin);
      to =
          std::min(to, std::max(from + kMaxColumns, std::min(last, first + kMaxColumns) + kMargin));
    }
    std::string text = from > 0 ? "..." : "";
    const int lead = static_cast<int>(text.size());
    for (std::size_t i = 0; i < line.size(); ++i)
      if (starts[i] >= from && starts[i] < to) text += line[i].text;
    if (to < starts.back()) text += "...";
    for (Mark& mark : marks) {
      mark.begin = std::min(mark.begin, to) - from + lead;
      mark.end = std::max(mark.begin + 1, std::min(mark.end, to) - from + lead);
    }
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }

  const char* style_of(const Mark& mark) const {
    return mark.is_primary ? primary_colour() : kBlue;
  }

  // The carets, the last mark's text behind them, and below, right to left, the other texts.
  void mark_rows(std::vector<Mark> marks) {
    std::string carets;
    int at = 0;
    for (const Mark& mark : marks) {
      const int begin = std::max(mark.begin, at);
      if (mark.end <= begin) continue;
      carets += std::string(begin - at, ' ');
      carets += paint(style_of(mark), std::string(mark.end - begin, mark.is_primary ? '^' : '-'));
      at = mark.end;
    }
    const Mark last = marks.back();
    marks.pop_back();
    if (!last.text.empty()) carets += ' ';
    row(carets + paint(style_of(last), last.text));
    std::erase_if(marks, [](const Mark& mark) { return mark.text.empty(); });
    if (!marks.empty()) stems(marks, "");
    while (!marks.empty()) {
      const Mark mark = marks.back();
      marks.pop_back();
      stems(marks, mark.text, mark.begin, style_of(mark));
    }
  }

  // "|" under every mark, then `text` at its column.
  void stems(const std::vector<Mark>& marks, const std::string& text, int column = 0,
             const char* style = kBlue) {
    std::string line;
    int at = 0;
    for (const Mark& mark : marks) {
      if (mark.begin < at) continue;
      line += std::string(mark.begin - at, ' ') + paint(style_of(mark), "|");
      at = mark.begin + 1;
    }
    if (!text.empty()) line += std::string(std::max(0, column - at), ' ') + paint(style, text);
    row(line);
  }

  void row(const std::string& text) {
    out_ +=
        std::string(gutter_, ' ') + paint(kBlue, " |") + (text.empty() ? "" : " " + text) + "\n";
  }

  // "= help: ...", continuation lines indented under the text.
  void footer(const std::string& word, const std::string& text) {
    const std::string lead = std::string(gutter_, ' ') + " ";
    std::string body = printable(text);
    const std::string indent = std::string("\n").append(gutter_ + 5 + word.size(), ' ');
    for (std::size_t at = body.find('\n'); at != std::string::npos;
         at = body.find('\n', at + indent.size()))
      body.replace(at, 1, indent);
    out_ += lead + paint(kBlue, "=") + " " + paint(kBold, word + ":") + " " + body + "\n";
  }

  const Diagnostic& diagnostic_;
  const Sources& sources_;
  bool colour_;
  int gutter_ = 1;
  std::string out_;
};

}  // namespace

std::string render(const Diagnostic& diagnostic, const Sources& sources, bool colour) {
  return Snippet(diagnostic, sources, colour).render();
}

}  // namespace lockstep::config
