"""What the hygiene checks share: walking the tree, reading C++ without its comments, and the self-test.

A check is a function from a tree to a list of problems, each "path:line: what is wrong". Run as a script it
first proves that it can fail: a small clean tree must pass, and the tree with each planted fault must not.
"""

import argparse
import dataclasses
import pathlib
import re
import sys
import tempfile

SKIPPED_FOLDERS = {".git", ".deps", ".cache", "build", "__pycache__", "corpus"}


@dataclasses.dataclass(frozen=True)
class Plant:
    """A fault: text for some file of the clean tree, and words the report must contain."""

    path: str
    text: str
    expect: str
    beside: dict = dataclasses.field(default_factory=dict)  # more files the fault needs, path to text


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a check looks: the sources, and a finished build of them if the check needs one."""

    root: pathlib.Path
    build: pathlib.Path | None = None
    torch: bool = False


def files(root, *tops, suffixes=()):
    """Files under the given folders (or all) with the given suffixes (or all), sorted, as paths from the root."""
    found = []
    for top in tops or (".",):
        start = root / top
        if start.is_file():
            found.append(start.relative_to(root))
            continue
        for path in start.rglob("*"):
            inside = path.relative_to(root)
            if SKIPPED_FOLDERS & set(inside.parts) or not path.is_file():
                continue
            if not suffixes or path.suffix in suffixes:
                found.append(inside)
    return sorted(found)


def text_of(root, path):
    return (root / path).read_text(encoding="utf-8")


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)


def bare_code(text):
    """C++ with comments blanked and literals emptied; line numbers stay."""

    def blank(match):
        token = match.group(0)
        lines = "\n" * token.count("\n")
        return lines if token.startswith("/") else '""' + lines

    return TOKEN.sub(blank, text)


_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(root, path):
    """(line number, delimiter, name) of each include; commented ones do not count."""
    without_comments = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text_of(root, path), flags=re.DOTALL)
    for number, line in enumerate(without_comments.splitlines(), 1):
        match = _INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    torch: bool
    may_include: frozenset
    line: int


def layers(root):
    """layers.txt as written, in order."""
    found = []
    for number, line in enumerate(text_of(root, "layers.txt").splitlines(), 1):
        match = re.match(r"^([a-z_0-9/]+)\s*(torch)?\s*:(.*)$", line)
        if match:
            found.append(Layer(match.group(1), bool(match.group(2)), frozenset(match.group(3).split()), number))
    return found


def area_of(path, names):
    """The innermost folder of layers.txt that holds a path of lockstep/ or tests/; without one, its first folder."""
    parts = pathlib.PurePath(path).parts[1:-1]
    for end in range(len(parts), 0, -1):
        if "/".join(parts[:end]) in names:
            return "/".join(parts[:end])
    return parts[0] if parts else ""


CLEAN_TREE = {
    "layers.txt": "base :\nmesh : base\ntensor torch : base mesh\n",
    "lockstep/base/one.h": "// One.\n#pragma once\n\nnamespace lockstep {\nint one();\n}  // namespace lockstep\n",
    "lockstep/base/one.cc": '#include "lockstep/base/one.h"\n\nnamespace lockstep {\nint one() { return 1; }\n}  // namespace lockstep\n',
    "lockstep/mesh/two.h": '#pragma once\n\n#include "lockstep/base/one.h"\n',
    "lockstep/tensor/three.h": '#pragma once\n\n#include <ATen/core/Tensor.h>\n\n#include "lockstep/base/one.h"\n#include "lockstep/mesh/two.h"\n',
    "lockstep/tensor/three.cc": '#include "lockstep/tensor/three.h"\n\n#include <torch/torch.h>\n',
    "cli/main.cc": '#include "lockstep/mesh/two.h"\n\nint main() { return 0; }\n',
    "tests/base/one_test.cc": '#include "lockstep/base/one.h"\n',
    "tests/mesh/two_test.cc": '#include "lockstep/mesh/two.h"\n',
    "tests/tensor/three_test.cc": '#include "lockstep/tensor/three.h"\n',
    "tests/CMakeLists.txt": "file(GLOB sources CONFIGURE_DEPENDS ${area}/*_test.cc)\n",
    "tests/hygiene/skipped.txt": "0\n",
    "README.md": "# Lockstep\n\nSee [layers](layers.txt).\n",
}


def write_tree(root, tree):
    for path, text in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def self_test(check, plants):
    """What is wrong with the check itself."""
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        write_tree(pathlib.Path(folder), CLEAN_TREE)
        for problem in check(Place(pathlib.Path(folder))):
            problems.append(f"self-test: the clean tree is refused: {problem}")
    for plant in plants:
        with tempfile.TemporaryDirectory() as folder:
            write_tree(pathlib.Path(folder), CLEAN_TREE | plant.beside | {plant.path: plant.text})
            report = "\n".join(check(Place(pathlib.Path(folder))))
            if plant.expect not in report:
                problems.append(f"self-test: a fault in {plant.path} was not reported as '{plant.expect}'; report was: {report or 'empty'}")
    return problems


def given_place():
    """The place named on the command line; by default the tree this file is in, unbuilt."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--torch", action="store_true")
    given = parser.parse_args()
    return Place(given.root, given.build, given.torch)


def report(problems, num_planted):
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(problems)} problems, {num_planted} planted faults")
    sys.exit(1 if problems else 0)


def run(check, plants):
    """Entry point of a check: self-test, then the real tree; exit code 1 when either has a problem."""
    report(self_test(check, plants) or check(given_place()), len(plants))
