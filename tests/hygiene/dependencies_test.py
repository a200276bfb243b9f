#!/usr/bin/env python3
"""docs/dependencies.md lists what tools/setup installs, each once, in the versions that are pinned or, of Debian's packages,
installed; with a licence and a reason."""

import re
import shutil
import subprocess

import house
from house import Plant

PAGE, SETUP, PINS = "docs/dependencies.md", "tools/setup", "tools/python-pins.txt"
ROW = re.compile(r"^\| (?!package )([^| -][^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
PIN = re.compile(r"([A-Za-z0-9._-]+)==([\w.]+)")


def wanted(root):
    """{package: its pinned version, or None of Debian's}"""
    setup = house.text_of(root, SETUP)
    packages = re.search(r"^readonly PACKAGES=\(\n(.*?)^\)", setup, re.DOTALL | re.MULTILINE)
    found = dict.fromkeys(packages.group(1).split() if packages else [])
    for line in re.findall(r'^readonly \w+_PINS="(.*)"$', setup, re.MULTILINE) + [house.text_of(root, PINS)]:
        found.update(PIN.findall(line))
    return found


def installed(package):
    """The upstream version that Debian's package manager has, or None."""
    if not shutil.which("dpkg-query"):
        return None
    told = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package], capture_output=True, text=True, check=False).stdout
    match = re.match(r"installed (?:\d+:)?(.*?)(?:\+(?:ds|dfsg)[\d.]*)?(?:-[^-]*)?$", told)
    return match.group(1) if match else None


def check(place):
    if not (place.root / PAGE).is_file():
        return []
    problems, rows, needed = [], {}, wanted(place.root)
    for name, version, licence, why in ROW.findall(house.text_of(place.root, PAGE)):
        if name in rows:
            problems.append(f"{PAGE}:1: lists {name} twice")
        if not licence.strip() or not why.strip():
            problems.append(f"{PAGE}:1: {name} has no licence or no reason")
        rows[name] = version
    problems += [f"{PAGE}:1: lists {name}, which nobody installs" for name in sorted(rows.keys() - needed)]
    problems += [f"{PAGE}:1: does not list {name}" for name in sorted(needed.keys() - rows)]
    for name in sorted(rows.keys() & needed.keys()):
        right = needed[name] or installed(name)
        if right and right != rows[name]:
            problems.append(f"{PAGE}:1: {name} is {right}, not {rows[name]}")
    return problems


TABLE = "| package | version | licence | why |\n|---|---|---|---|\n"
FILES = {
    SETUP: 'readonly TORCH_PINS="torch==2.0"\nreadonly PACKAGES=(\n  no-such-package\n)\n',
    PINS: "# Pins.\nnumpy==1.0\n",
}
RIGHT = TABLE + "| torch | 2.0 | BSD | tensors |\n| no-such-package | 7 | MIT | x |\n| numpy | 1.0 | BSD | arrays |\n"
PLANTS = [
    Plant(PAGE, RIGHT.replace("| 2.0 |", "| 2.1 |"), "torch is 2.0, not 2.1", FILES),
    Plant(PAGE, RIGHT + "| scipy | 1 | BSD | x |\n", "lists scipy, which nobody installs", FILES),
    Plant(PAGE, RIGHT + "| numpy | 1.0 | BSD | x |\n", "lists numpy twice", FILES),
    Plant(PAGE, RIGHT.replace("arrays", " "), "numpy has no licence or no reason", FILES),
    Plant(PAGE, TABLE, "does not list no-such-package", FILES),
]
house.CLEAN_TREE |= {PAGE: RIGHT} | FILES

if __name__ == "__main__":
    house.run(check, PLANTS)
