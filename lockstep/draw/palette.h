// Colours of inks on paper. Blue, orange, vermilion, purple, yellow and green after Okabe and Ito,
// whose palette colour-blind readers can tell apart, moved in lightness until the inks of compute
// also differ in grey (L* of F 34, B 54, I 73, W 85).
#pragma once

#include <string>

#include "lockstep/draw/figure.h"

namespace lockstep::draw {

// "#00548c". The first chunk has the ink itself, later ones are lighter.
// REQUIRES: 0 <= chunk < chunks.
std::string colour_of(Ink ink, int chunk, int chunks);

// What is read best on it: "#fff" or "#000".
std::string text_colour_on(Ink ink);

}  // namespace lockstep::draw
