#include "lockstep/draw/scatter.h"

#include <gtest/gtest.h>

namespace lockstep::draw {
namespace {

TEST(Scatter, OneCirclePerDotAndLabelsEscaped) {
  const Scatter scatter{"a < b",        "x", "y",
                        {"one", "two"}, 0.2, {{1, 1, 0, "p & q"}, {50, 80, 1, "r"}}};
  const std::string text = scatter_svg(scatter);
  EXPECT_NE(text.find("a &lt; b"), std::string::npos);
  EXPECT_NE(text.find("p &amp; q"), std::string::npos);
  std::size_t circles = 0;
  for (std::size_t at = text.find("<circle"); at != std::string::npos;
       at = text.find("<circle", at + 1))
    ++circles;
  EXPECT_EQ(circles, 2 + 2u);  // dots and the legend
}

TEST(Scatter, EmptyIsAPicture) {
  EXPECT_NE(scatter_svg(Scatter{}).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::draw
