#!/usr/bin/env python3
"""package_test.py WHEEL: the package that `pip install .` makes, in an environment that has nothing else: its answers are those
of the program in it, its refusals exceptions, its pictures SVG, and the notebook of examples/ runs."""

import ast
import contextlib
import inspect
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

WHEEL = Path(sys.argv.pop(1))
TREE = Path(__file__).resolve().parents[2]
NOTEBOOK, RUNS = TREE / "examples" / "planning.ipynb", TREE / "tests" / "backtest" / "runs.csv"

import lockstep  # noqa: E402  installed, not of the tree

PROGRAM = Path(lockstep.__file__).parents[1] / "bin" / "lockstep"
LLAMA = dict(model="llama3-8b", cluster="h100:16", seq=8192, global_batch=64)


def told(verb, *words):
    ran = subprocess.run([PROGRAM, verb, *words, "--json"], capture_output=True, text=True)
    return json.loads(ran.stdout or ran.stderr)


def words_of(fields):
    words = []
    for name, value in fields.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(option)
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [option, str(one)]
    return words


def timeless(answer):
    """Without the time that the search took, which differs from run to run."""
    return {key: value for key, value in answer.items() if key not in ("walk_s", "all_s")}


class Answers(unittest.TestCase):
    def test_plan(self):
        for more in ({}, {"explain": True, "top": 3}, {"what_if": ["network=2x", "memory=2x"]}, {"tokens": "1T", "price": 2.5},
                     {"for_": "megatron"}, {"layout": "tp=8"}, {"fits": True}, {"compare": ["b200:16", "32,64"]}):
            fields = {**LLAMA, **more}
            with self.subTest(fields=fields):
                self.assertEqual(timeless(lockstep.plan(**fields)), timeless(told("plan", *words_of(fields))))

    def test_other_verbs(self):
        self.assertEqual(lockstep.model("mixtral-8x7b"), told("model", "mixtral-8x7b"))
        self.assertEqual(lockstep.model(list=True), told("model", "--list"))
        self.assertEqual(lockstep.cluster("gb200:128/64"), told("cluster", "gb200:128/64"))
        fields = {"schedule": "zbv", "pp": 4, "microbatches": 12, "p2p": 0.05}
        self.assertEqual(lockstep.simulate(**fields), told("simulate", *words_of(fields)))
        self.assertEqual(lockstep.simulate(compare="all", pp=4), told("simulate", "--compare", "all", "--pp", "4"))
        self.assertEqual(lockstep.backtest(RUNS), told("backtest", str(RUNS)))

    def test_what_does_not_fit_is_an_answer(self):
        answer = lockstep.plan(**LLAMA, layout="tp=1,pp=1,zero=0", fits=True)
        self.assertEqual((answer["fits"], answer.exit_code), (False, 1))

    def test_threads(self):
        alone, answers = timeless(lockstep.plan(**LLAMA)), []
        threads = [threading.Thread(target=lambda: answers.append(timeless(lockstep.plan(**LLAMA)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [alone] * 4)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "plan.html"
            answer = lockstep.plan(**LLAMA, report=page)
            self.assertIn("<!DOCTYPE html>", page.read_text())
            self.assertEqual(page.read_text().split("<body>")[0], answer.report_html().split("<body>")[0])
            self.assertEqual(os.listdir(folder), ["plan.html"])
            with self.assertRaises(FileNotFoundError):
                lockstep.plan(**LLAMA, report=Path(folder) / "missing" / "plan.html")


class Refusals(unittest.TestCase):
    def test_say_what_to_do(self):
        for fields, code, words in (({"model": "lama3-8b"}, 2, "llama3-8b"), ({"top": 99}, 2, "64"), ({"dtype": "f16"}, 2, "bf16"),
                                    ({"cluster": "h100:1"}, 1, "")):
            with self.subTest(fields=fields), self.assertRaises(lockstep.Refused) as caught:
                lockstep.plan(**{**LLAMA, **fields})
            self.assertEqual(caught.exception.exit_code, code)
            self.assertIn(words, str(caught.exception))
            self.assertTrue(caught.exception.diagnostics[0]["code"].startswith("LS"))
        with self.assertRaises(TypeError):
            lockstep.plan(modle="llama3-8b")
        with self.assertRaises(TypeError):
            lockstep.plan(**{**LLAMA, "seq": object()})

    def test_text_that_is_no_request(self):
        from lockstep._lockstep import ask

        for text in ("", "[]", "{}", '{"verb": "train"}', "\x00", '{"verb": "plan", "top": 1e999}'):
            self.assertIsNone(json.loads(ask(text))["answer"], text)
        with self.assertRaises(TypeError):
            ask(b"{}")
        with self.assertRaises(UnicodeEncodeError):
            ask("\ud800")


class Pictures(unittest.TestCase):
    def test_are_svg(self):
        for answer in (lockstep.plan(**LLAMA), lockstep.simulate(schedule="1f1b", pp=4), lockstep.backtest(RUNS)):
            self.assertTrue(ET.fromstring(answer._repr_svg_()).tag.endswith("svg"))
        self.assertIsNone(lockstep.simulate(compare="all", pp=4)._repr_svg_())
        self.assertIsNone(lockstep.plan(**LLAMA, fits=True)._repr_svg_())


class Package(unittest.TestCase):
    def test_every_option_is_a_typed_keyword(self):
        for verb in ("plan", "simulate", "model", "cluster", "backtest"):
            function = getattr(lockstep, verb)
            parameters = inspect.signature(function).parameters
            command = told("help", verb)["commands"][0]
            named = {one["name"].lower().replace("-", "_") for one in command["options"] + command["positionals"]}
            self.assertEqual({name.rstrip("_") for name in parameters}, named)
            for name, parameter in parameters.items():
                self.assertIsNot(parameter.annotation, inspect.Parameter.empty, name)
                self.assertIn(f"        {name}: ", function.__doc__)

    def test_one_wheel_for_every_python(self):
        self.assertRegex(WHEEL.name, r"-cp39-abi3-")
        with zipfile.ZipFile(WHEEL) as wheel:
            names = [name.split("/", 1)[1] for name in wheel.namelist()]
        self.assertIn("py.typed", names)
        self.assertFalse([name for name in names if name.endswith((".h", ".cc", ".a"))])

    def test_needs_nothing_that_a_machine_lacks(self):
        for file in (PROGRAM, next(Path(lockstep.__file__).parent.glob("_lockstep*.so"))):
            dynamic = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
            needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
            self.assertLessEqual(needed, {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2"})

    def test_notebook(self):
        cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
        self.assertTrue(all(not cell["outputs"] for cell in cells))
        shown, names, printed, before = [], {}, io.StringIO(), os.getcwd()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
            os.chdir(folder)
            try:
                for cell in cells:  # as a kernel does: what the last expression has for a picture is shown
                    tree = ast.parse("".join(cell["source"]))
                    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
                    exec(compile(tree, "cell", "exec"), names)
                    value = eval(compile(last, "cell", "eval"), names) if last else None
                    if hasattr(value, "_repr_svg_"):
                        shown.append(value._repr_svg_())
                self.assertTrue(Path("plan.html").stat().st_size > 10000)
            finally:
                os.chdir(before)
        self.assertEqual([(svg or "")[:4] for svg in shown], ["<svg"] * 2)
        self.assertIn("256 GPUs", printed.getvalue())

    def test_figures(self):
        def median_of(count, work):
            times = []
            for _ in range(count):
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
            return 1e3 * statistics.median(times)

        script = "import json, time; t = time.perf_counter(); import lockstep; print(time.perf_counter() - t)"
        imports = [1e3 * float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout) for _ in range(5)]
        llama = dict(model="llama3-70b", cluster="h100:64", seq=8192, global_batch=256)
        print(f"wheel {WHEEL.stat().st_size / 1e6:.2f} MB, import {statistics.median(imports):.0f} ms, "
              f"plan of llama3-70b on 64 H100 {median_of(5, lambda: lockstep.plan(**llama)):.0f} ms, "
              f"a schedule {median_of(20, lambda: lockstep.simulate(schedule='1f1b')):.1f} ms")


if __name__ == "__main__":
    unittest.main()
