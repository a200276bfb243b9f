#!/usr/bin/env python3
"""docs/strata.svg is the picture of layers.txt."""

import house
import strata
from house import Plant


def check(place):
    try:
        picture = strata.draw(house.layers(place.root))
    except ValueError as error:
        return [f"layers.txt:1: {error}"]
    path = place.root / strata.PAGE
    if path.exists() and path.read_text(encoding="utf-8") == picture:
        return []
    return [f"{strata.PAGE}:1: is no picture of layers.txt; python3 tests/hygiene/strata.py draws it"]


LAYERS = house.CLEAN_TREE["layers.txt"]
house.CLEAN_TREE[strata.PAGE] = strata.draw(
    [
        house.Layer("base", False, frozenset(), 1),
        house.Layer("mesh", False, frozenset({"base"}), 2),
        house.Layer("tensor", True, frozenset({"base", "mesh"}), 3),
    ]
)
PLANTS = [
    Plant("layers.txt", LAYERS + "nn torch : base tensor\n", "is no picture of layers.txt"),
    Plant("layers.txt", LAYERS.replace("torch", ""), "is no picture of layers.txt"),
    Plant("layers.txt", LAYERS + "news : base\n", "no description in strata.py: news"),
    Plant(strata.PAGE, "<svg/>\n", "is no picture of layers.txt"),
]

if __name__ == "__main__":
    house.run(check, PLANTS)
