#!/usr/bin/env python3
"""tools/release makes the same tarball, checksum and notes of a tag each time, from what is tagged alone, and refuses a tag whose
version is not that of CMakeLists.txt or has no notes; and the one place that says the version is CMakeLists.txt."""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import house

CMAKE = "cmake_minimum_required(VERSION 3.25)\nproject(Lockstep VERSION %s LANGUAGES CXX)\n"
CHANGES = "# Changes\n\n## [Unreleased]\n\n- later\n\n## [0.2.0] - 2026-11-20\n\n- a change\n\n## [0.1.0] - 2026-01-01\n\n- first\n"
PLAIN = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
PLAIN |= {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder, *words):
    subprocess.run(["git", *words], cwd=folder, env=os.environ | PLAIN, check=True, capture_output=True)


def make_tree(folder, root, version="0.2.0", changes=CHANGES):
    (folder / "tools").mkdir()
    shutil.copy2(root / "tools/release", folder / "tools/release")
    (folder / "CMakeLists.txt").write_text(CMAKE % version)
    (folder / "CHANGELOG.md").write_text(changes)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    git(folder, "tag", "v0.2.0")


def release(folder, *words):
    ran = subprocess.run([folder / "tools/release", *words], env=os.environ | PLAIN, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


def check_release(root):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_tree(folder, root)
        (folder / "CHANGELOG.md").write_text("of the working tree\n")
        out = folder / "build/release"
        seen = []
        for _ in range(2):
            code, told = release(folder, "v0.2.0")
            if code != 0:
                return [f"tools/release:1: failed: {told}"]
            seen.append({path.name: path.read_bytes() for path in out.iterdir()})
        problems = [] if seen[0] == seen[1] else ["tools/release:1: the same tag gave other bytes"]
        if sorted(seen[0]) != ["lockstep-0.2.0.md", "lockstep-0.2.0.sha256", "lockstep-0.2.0.tar.gz"]:
            return problems + [f"tools/release:1: made {sorted(seen[0])}"]
        if seen[0]["lockstep-0.2.0.md"].strip() != b"- a change":
            problems.append(f"tools/release:1: notes are {seen[0]['lockstep-0.2.0.md']}")
        if subprocess.run(["sha256sum", "-c", "lockstep-0.2.0.sha256"], cwd=out, capture_output=True, check=False).returncode != 0:
            problems.append("tools/release:1: the checksum is not that of the tarball")
        with tarfile.open(out / "lockstep-0.2.0.tar.gz") as tar:
            if tar.extractfile("lockstep-0.2.0/CHANGELOG.md").read().decode() != CHANGES:
                problems.append("tools/release:1: the tarball has what was not tagged")
        return problems


def check_refusals(root):
    problems = []
    for trees, words, expect in (
        ({}, ["v0.3.0"], "there is no tag v0.3.0"),
        ({}, ["0.2.0"], "no tag of a release"),
        ({}, [], "no tag of a release"),
        ({}, ["v0.2.0", "--frobnicate"], "unknown option"),
        ({}, ["v0.2.0", "v0.2.0"], "one tag"),
        ({"version": "0.2.1"}, ["v0.2.0"], "says version '0.2.1'"),
        ({"changes": CHANGES.replace("0.2.0", "0.2.00")}, ["v0.2.0"], "has no '## [0.2.0]"),
        ({"changes": CHANGES.replace(" - 2026-11-20", "")}, ["v0.2.0"], "YYYY-MM-DD"),
        ({"changes": CHANGES.replace("- a change\n", "")}, ["v0.2.0"], "says nothing"),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            make_tree(folder, root, **trees)
            code, told = release(folder, *words)
            if code == 0 or expect not in told:
                problems.append(f"tools/release:1: {words} of {trees} was not refused with '{expect}' but: {told}")
            if (folder / "build").exists() and any((folder / "build").rglob("*.tar.gz")):
                problems.append(f"tools/release:1: left files behind {words} of {trees}")
    return problems


def check_one_place(root):
    """No other file that states facts about the project has the version."""
    version = re.search(r"^project\(Lockstep VERSION ([\d.]+)", house.text_of(root, "CMakeLists.txt"), re.MULTILINE).group(1)
    problems = []
    for path in ("CITATION.cff", ".github/workflows/release.yml", "tools/release"):
        if version in house.text_of(root, path):
            problems.append(f"{path}:1: has the version, whose one place is CMakeLists.txt")
    return problems


if __name__ == "__main__":
    tree = house.given_place().root
    house.report(check_release(tree) + check_refusals(tree) + check_one_place(tree), 9)
