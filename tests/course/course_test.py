#!/usr/bin/env python3
"""The lessons of docs/course are what their commands print and draw.

A block marked `console` holds commands behind "$ " and what they print. All of a lesson's commands run in its order, in one
directory, with a copy of the examples; blocks marked `toml FILE` are
written there when their turn comes. What a command prints must
be what the page shows, to the byte, and every picture of the page must be what a command drew. A page cannot show what
differs from run to run: its commands leave that out themselves.

LOCKSTEP_UPDATE_GOLDEN=1 rewrites pages and pictures; the change then shows in review."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COURSE = ROOT / "docs" / "course"
BLOCK = re.compile(r"^```(console|toml) ?(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+\.svg)\)")
NEEDS_TORCH = re.compile(r"\blockstep (train|verify|calibrate)\b")


def split_commands(text):
    """[command, shown] of a console block; a line that begins with "> " right behind a command goes on with it."""
    commands = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append([line, ""])
        elif commands and line.startswith("> ") and not commands[-1][1]:
            commands[-1][0] += line
        elif commands:
            commands[-1][1] += line
        else:
            raise ValueError(f"output without a command: {line}")
    return commands


def run(command, folder, program):
    variables = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "80", "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(["bash", "-c", command], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    return ran.stdout.decode()


def retell(text, folder, program, with_torch):
    """The page with its blocks as the program prints them today."""

    def block(match):
        kind, name, body = match.groups()
        if kind == "toml":
            if name:
                (folder / name).write_text(body)
            return match.group(0)
        told = ""
        for command, shown in split_commands(body):
            if with_torch or not NEEDS_TORCH.search(command):
                shown = run("".join(line[2:] for line in command.splitlines(keepends=True)), folder, program)
            told += command + shown + ("" if shown.endswith("\n") or not shown else "\n")
        return f"```console\n{told}```"

    return BLOCK.sub(block, text)


def first_difference(expected, actual):
    for number, (old, new) in enumerate(zip(expected.splitlines(), actual.splitlines()), 1):
        if old != new:
            return f"line {number}\n  page:    {old}\n  program: {new}"
    return f"line {min(len(expected.splitlines()), len(actual.splitlines())) + 1}: one of them ends"


def check_page(page, program, with_torch):
    """What is wrong with a page, and what would be right: contents by path."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        shutil.copytree(ROOT / "examples", folder / "examples")
        text = page.read_text()
        told = retell(text, folder, program, with_torch)
        problems, right = [], {}
        if told != text:
            problems.append(f"{page.name}: {first_difference(text, told)}")
            right[page] = told.encode()
        for name in PICTURE.findall(text):
            picture, drawn = page.parent / name, folder / name
            if not drawn.exists():
                problems.append(f"{page.name}: no command draws {name}")
            elif not picture.exists() or picture.read_bytes() != drawn.read_bytes():
                problems.append(f"{name}: is not what {page.name} draws")
                right[picture] = drawn.read_bytes()
    return problems, right


def check_itself(program):
    """Planted faults: a wrong number, a picture that nobody draws, and one that is drawn otherwise."""
    page = "```toml a.txt\n3\n```\n```console\n$ echo 2 |\n> cat - a.txt\n2\n%s\n$ echo '<svg/>' >b.svg\n```\n![b](%s.svg)\n"
    with tempfile.TemporaryDirectory() as scratch:
        planted = pathlib.Path(scratch) / "planted.md"
        for number, drawn, picture, wrong in (3, "b", "<svg/>\n", []), (4, "b", "<svg/>\n", ["line 8"]), (3, "c", "", ["no command"]), (3, "b", "", ["draws"]):
            planted.write_text(page % (number, drawn))
            (planted.parent / "b.svg").write_text(picture)
            found, _ = check_page(planted, program, True)
            assert len(found) == len(wrong) and all(part in text for part, text in zip(wrong, found)), found


def orphans(pages):
    named = {name for page in pages for name in PICTURE.findall(page.read_text())}
    return [f"docs/course/{path.name}: no lesson shows it" for path in sorted(COURSE.glob("*.svg")) if path.name not in named]


def main():
    program, with_torch = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] == "1"
    pages = sorted(COURSE.glob("[0-9]*.md"))
    assert len(pages) == 3, pages
    check_itself(program)
    problems = orphans(pages)
    with concurrent.futures.ThreadPoolExecutor() as pool:  # a lesson is a chain of small processes
        for wrong, right in pool.map(lambda page: check_page(page, program, with_torch), pages):
            problems += wrong
            if os.environ.get("LOCKSTEP_UPDATE_GOLDEN") and with_torch:
                for path, content in right.items():
                    path.write_bytes(content)
    print("\n".join(problems) or f"{len(pages)} lessons are as they say")
    if problems:
        print("LOCKSTEP_UPDATE_GOLDEN=1 rewrites them")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
