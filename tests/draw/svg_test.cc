#include "lockstep/draw/svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/draw/samples.h"

namespace lockstep::draw {
namespace {

// Elements of an SVG file with what groups shift them by.
struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // what stands directly in it
  std::string tip;   // what stands in its title
  double x = 0, y = 0, font = 0;

  double number(const std::string& key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? 0 : std::stod(found->second);
  }
};

// Refuses what is not well-formed; enough of XML for what is written here.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  std::vector<Element> read() {
    while (at_ < text_.size()) {
      const std::size_t open = text_.find('<', at_);
      characters(text_.substr(at_, open - at_));
      if (open == std::string::npos) break;
      const std::size_t close = text_.find('>', open);
      if (close == std::string::npos) {
        ADD_FAILURE() << "a tag without end";
        break;
      }
      tag(text_.substr(open + 1, close - open - 1));
      at_ = close + 1;
    }
    EXPECT_TRUE(stack_.empty()) << "not closed";
    return done_;
  }

 private:
  void characters(const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      EXPECT_TRUE(static_cast<unsigned char>(text[i]) >= 0x20 || text[i] == '\n');
      if (text[i] != '&') continue;
      bool is_known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"})
        is_known = is_known || text.compare(i, std::strlen(entity), entity) == 0;
      EXPECT_TRUE(is_known) << text;
    }
    if (!stack_.empty()) stack_.back().text += text;
  }

  void tag(std::string inside) {
    if (inside[0] == '/') return close(inside.substr(1));
    const bool is_empty = inside.back() == '/';
    if (is_empty) inside.pop_back();
    Element element;
    element.name = inside.substr(0, inside.find(' '));
    std::size_t at = element.name.size();
    while ((at = inside.find_first_not_of(' ', at)) != std::string::npos) {
      const std::size_t equals = inside.find("=\"", at), end = inside.find('"', equals + 2);
      ASSERT_TRUE(equals != std::string::npos && end != std::string::npos) << inside;
      const std::string key = inside.substr(at, equals - at);
      ASSERT_TRUE(
          element.attributes.try_emplace(key, inside.substr(equals + 2, end - equals - 2)).second);
      at = end + 1;
    }
    if (!stack_.empty()) {
      element.x = stack_.back().x;
      element.y = stack_.back().y;
      element.font = stack_.back().font;
    }
    if (element.attributes.contains("font-size")) element.font = element.number("font-size");
    if (element.name == "g") {
      double x = 0, y = 0;
      ASSERT_EQ(std::sscanf(element.attributes["transform"].c_str(), "translate(%lf %lf)", &x, &y),
                2);
      element.x += x;
      element.y += y;
    }
    stack_.push_back(element);
    if (is_empty) close(element.name);
  }

  void close(const std::string& name) {
    ASSERT_FALSE(stack_.empty());
    ASSERT_EQ(stack_.back().name, name);
    const Element element = std::move(stack_.back());
    stack_.pop_back();
    if (element.name == "title" && !stack_.empty()) stack_.back().tip = element.text;
    done_.push_back(element);
  }

  const std::string& text_;
  std::size_t at_ = 0;
  std::vector<Element> stack_, done_;
};

std::vector<Element> read(const std::string& text) { return Reader(text).read(); }

struct Box {
  double left, right, top, bottom;
};

// As wide as DejaVu Sans sets digits; other letters are narrower on average.
Box box_of(const Element& text) {
  const double size = 0.636 * text.font * static_cast<double>(text.text.size());
  const double x = text.x + text.number("x"), y = text.y + text.number("y");
  const auto anchor = text.attributes.find("text-anchor");
  const bool is_number = text.attributes.contains("class");
  const double left = is_number || (anchor != text.attributes.end() && anchor->second == "middle")
                          ? x - size / 2
                      : anchor != text.attributes.end() ? x - size
                                                        : x;
  return {left, left + size, y - 0.75 * text.font, y + 0.05 * text.font};
}

bool overlap(const Box& a, const Box& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

std::size_t bars_of(const Figure& figure) {
  std::size_t bars = 0;
  for (const Band& band : figure.bands)
    for (const Lane& lane : band.lanes) bars += lane.bars.size();
  return bars;
}

TEST(Svg, EveryBarIsThereOnceAndInsideItsBand) {
  for (const Figure& figure : all_figures()) {
    const std::vector<Element> elements = read(svg(figure));
    std::map<std::string, int> names, drawn;
    for (const Band& band : figure.bands)
      for (const Lane& lane : band.lanes)
        for (const Bar& bar : lane.bars) ++names[bar.name];
    const Element& root = elements.back();
    ASSERT_EQ(root.name, "svg");
    double plot = 0;
    for (const Element& element : elements)
      if (element.attributes.contains("class") && element.attributes.at("class") == "idle")
        plot = std::max(plot, element.number("width"));
    double work = 0;
    for (const Element& element : elements) {
      if (element.name != "rect" || element.tip.empty()) continue;
      ++drawn[element.tip.substr(0, element.tip.find(':'))];
      EXPECT_GE(element.number("x"), 0);
      EXPECT_LE(element.number("x") + element.number("width"), plot + 0.011);
      EXPECT_GT(element.number("width"), 0);
      EXPECT_LE(element.y + element.number("height"), root.number("height"));
      work += element.number("width");
    }
    EXPECT_EQ(drawn, names) << figure.title;
    double expected = 0;
    for (const Band& band : figure.bands)
      for (const Lane& lane : band.lanes)
        for (const Bar& bar : lane.bars) expected += (bar.end - bar.start).value;
    // Each width is rounded to a hundredth.
    EXPECT_NEAR(work, expected * plot / figure.makespan.value,
                0.006 * static_cast<double>(bars_of(figure)));
  }
}

TEST(Svg, NoTextOverlapsAnotherOrIsCutOff) {
  for (const Figure& figure : all_figures()) {
    const std::vector<Element> elements = read(svg(figure));
    const Element& root = elements.back();
    std::vector<Box> boxes;
    for (const Element& element : elements) {
      if (element.name != "text") continue;
      boxes.push_back(box_of(element));
      EXPECT_GE(boxes.back().left, 0) << figure.title << ": " << element.text;
      EXPECT_LE(boxes.back().right, root.number("width")) << figure.title << ": " << element.text;
      EXPECT_LE(boxes.back().bottom, root.number("height")) << figure.title << ": " << element.text;
    }
    std::ranges::sort(boxes, {}, &Box::left);
    int overlaps = 0;
    for (std::size_t i = 0; i < boxes.size(); ++i)
      for (std::size_t k = i + 1; k < boxes.size() && boxes[k].left < boxes[i].right; ++k)
        overlaps += overlap(boxes[i], boxes[k]) ? 1 : 0;
    EXPECT_EQ(overlaps, 0) << figure.title;
  }
}

TEST(Svg, NumbersStandInTheirBarsInOrder) {
  const pipeline::Shape shape = {4, 2, 8};
  const std::vector<Element> elements = read(svg(staged("zbv", shape)));
  std::vector<std::string> found;
  for (const Element& text : elements) {
    if (text.name != "text" || !text.attributes.contains("class")) continue;
    found.push_back(text.text);
    const Box box = box_of(text);
    EXPECT_TRUE(std::ranges::any_of(elements, [&](const Element& bar) {
      const double left = bar.x + bar.number("x");
      return !bar.tip.empty() && bar.name == "rect" && left < box.left &&
             box.right < left + bar.number("width") && bar.y < box.top &&
             box.bottom < bar.y + bar.number("height") &&
             bar.tip.find("microbatch " + text.text + ";") != std::string::npos;
    })) << text.text;
  }
  std::vector<std::string> expected;
  const pipeline::Schedule zbv = built("zbv", shape);
  for (int c = 0; c < shape.coords; ++c)
    for (const pipeline::Pass& pass : zbv.passes({c}))
      expected.push_back(std::to_string(pass.microbatch.value));
  EXPECT_EQ(found, expected);
}

TEST(Svg, StandsAlone) {
  const std::string text = svg(staged("1f1b", {4, 1, 8}));
  for (const char* foreign :
       {"<script", "href", "@import", "<image", "@font-face", "<foreignObject"})
    EXPECT_EQ(text.find(foreign), std::string::npos) << foreign;
  EXPECT_NE(text.find("viewBox"), std::string::npos);
}

TEST(Svg, HostileTextIsEscaped) {
  Figure figure = staged("1f1b", {1, 1, 1});
  figure.title = "</text><script>&\"'\x1b\xff \xED\xA0\x80 " + std::string(400, 'M');
  figure.bands[0].lanes[0].bars[0].name = "<b>&";
  const std::string text = svg(figure);
  EXPECT_EQ(text.find("<script"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\xff'), std::string::npos);
  const std::vector<Element> elements = read(text);
  for (const Element& element : elements) {
    if (element.name != "text" || element.text[0] != 'M') continue;
    EXPECT_LE(box_of(element).right, elements.back().number("width"));
  }
}

TEST(Svg, LargeStepsStaySmall) {
  for (const pipeline::Shape& shape : {pipeline::Shape{2, 1, 6000}, {130, 1, 200}}) {
    const Figure figure = staged("1f1b", shape);
    const std::string text = svg(figure);
    EXPECT_LT(text.size(), 4u << 20);
    EXPECT_NE(text.find("share a column"), std::string::npos);
    EXPECT_EQ(text.find("every 2nd of 130 pipeline ranks") != std::string::npos,
              shape.coords == 130);
    EXPECT_EQ(read(text).back().name, "svg");
  }
}

TEST(Svg, NothingIsDrawnOfNothing) {
  EXPECT_EQ(read(svg(Figure{})).back().name, "svg");
  Figure figure;
  figure.bands.push_back({{0}, {{LaneKind::kCompute, "compute", {}}}, {{{}, 0}}});
  EXPECT_EQ(read(svg(figure)).back().name, "svg");
}

TEST(Svg, SameFigureSameBytes) {
  EXPECT_EQ(svg(staged("zbv", {4, 2, 8})), svg(staged("zbv", {4, 2, 8})));
}

}  // namespace
}  // namespace lockstep::draw
