#!/usr/bin/env python3
"""Every number on the page of `lockstep report` is one of metrics.jsonl, or follows from its lines: the page is read back
element by element and point by point. Runs that resumed in another layout, that skipped steps, of 100,000 steps, that
are being written, and what is damaged. Changed pages show that the comparison can fail."""

import html.parser
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

CHARTS = {"Loss": ["loss", "eval"], "Gradient norm": ["grad_norm"], "Tokens a second": ["tokens_per_second"],
          "Learning rate": ["lr"]}  # fmt: skip
UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600, "days": 86400,
         "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}  # fmt: skip
VOID = {"meta", "path", "rect", "circle", "line", "image"}


class Page(html.parser.HTMLParser):
    """Numbers and texts that say where they are from, points by chart and curve, and everything else in sight."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.charts, self.bare, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        classes = [one[1].get("class") for one in self.open]
        if "chart" in classes and tag == "svg":
            self.charts.append({"title": "", "groups": []})
        if "chart" in classes and tag == "g":
            self.charts[-1]["groups"].append([])
        if "data-x" in attributes:
            self.charts[-1]["groups"][-1].append(attributes)
        if "data-json" in attributes:
            self.cells.append({**attributes, "tag": tag, "text": ""})
        if tag not in VOID:
            self.open.append((tag, attributes))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open[-1][0] == tag, (tag, self.open[-1:])
            self.open.pop()

    def handle_data(self, text):
        tags = [one[0] for one in self.open]
        if any("data-json" in one[1] for one in self.open):
            self.cells[-1]["text"] += text
        elif tags[-2:] == ["svg", "title"] and self.charts and not self.charts[-1]["title"]:
            self.charts[-1]["title"] = text
        elif "svg" not in tags and "style" not in tags and "title" not in tags:
            self.bare.append(text)


def at(value, path):
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value.get(part)
    return value


def same(text, value):
    """What is in sight is the number, rounded to its last digit."""
    if text.endswith("UTC"):
        return True
    parts = re.findall(r"(-?[\d,]+)(\.\d+)?(e[-+]?\d+)? ?([A-Za-z]*)", text)
    seen = sum(float((a + b).replace(",", "") + c) * UNITS[unit] for a, b, c, unit in parts)
    last = parts[-1]
    digit = 10.0 ** (-max(len(last[1]) - 1, 0)) * float("1" + last[2]) * UNITS[last[3]]
    return abs(seen - value) <= 0.5001 * digit + 1e-9 * abs(value)


def number(value):
    return float(value) if isinstance(value, str) else value


def read(folder):
    text = (folder / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def expected(folder):
    lines = read(folder)
    steps = [one for one in lines if one["event"] in ("step", "skip")]
    evals = [one for one in lines if one["event"] == "eval"]
    starts = [one for one in lines if one["event"] in ("start", "resume")]
    made = {"done": steps[-1]["step"], "samples": steps[-1]["samples"], "tokens": sum(one["tokens"] for one in steps),
            "seconds": sum(one["seconds"] for one in steps), "skipped": sum(one["event"] == "skip" for one in steps),
            "first_loss": steps[0]["loss"], "last_loss": steps[-1]["loss"], "saves": sum(one["event"] == "save" for one in lines),
            "peak_bytes": max(one["peak_bytes"] for one in steps), "sent_bytes": max(one["sent_bytes"] for one in steps)}  # fmt: skip
    made["tokens_per_second"] = made["tokens"] / made["seconds"]
    for key in ("parameters", "seq", "global_batch", "microbatch", "ranks", "steps", "layout", "dtype", "model"):
        made[key] = starts[-1][key]
    for name, one in (("eval", evals[-1:]), ("best_eval", sorted(evals, key=lambda one: one["loss"])[:1])):
        for key in ("loss", "perplexity", "step"):
            if one:
                made[f"{name}.{key}"] = one[0][key]
    for i, start in enumerate(starts):
        own = lines[lines.index(start) : lines.index(starts[i + 1]) if i + 1 < len(starts) else None]
        own = [one for one in own if one["event"] in ("step", "skip")]
        made |= {f"starts.{i}.{key}": start[key] for key in ("step", "time", "layout", "ranks", "event")}
        made |= {f"starts.{i}.{key}": start[key] for key in ("predicted_peak_bytes", "predicted_sent_bytes") if key in start}
        made |= {f"starts.{i}.made": len(own), f"starts.{i}.peak_bytes": max(one["peak_bytes"] for one in own),
                 f"starts.{i}.sent_bytes": max(one["sent_bytes"] for one in own),
                 f"starts.{i}.as_predicted": sum(one["peak_bytes"] == start.get("predicted_peak_bytes")
                                                 and one["sent_bytes"] == start.get("predicted_sent_bytes") for one in own)}  # fmt: skip
    return made


def check_points(page, folders):
    assert [chart["title"] for chart in page.charts] == list(CHARTS)
    for chart in page.charts:
        groups, places = iter(chart["groups"]), []
        for folder in folders:
            for what in CHARTS[chart["title"]]:
                lines = [one for one in read(folder) if one["event"] in (("eval",) if what == "eval" else ("step", "skip"))]
                if what == "eval" and not lines:
                    continue
                truth = {one["step"]: number(one["loss" if what == "eval" else what]) for one in lines}
                group = next(groups)
                points = [(int(float(one["data-x"])), number(one["data-y"])) for one in group]
                assert all(str(truth[x]) == str(y) for x, y in points), (chart["title"], folder)
                assert len(points) <= 300
                finite = [y for y in truth.values() if math.isfinite(y)]
                shown = [y for _, y in points if math.isfinite(y)]
                assert (min(shown), max(shown)) == (min(finite), max(finite)), chart["title"]
                assert points[0][0] == min(truth) and points[-1][0] == max(truth)
                assert len(truth) > 300 or len(points) == len(truth)
                assert any(math.isnan(y) for y in truth.values()) == any(math.isnan(y) for _, y in points)
                places += [(float(one["cx"]), float(one["cy"]), float(one["data-x"]), float(one["data-y"]))
                           for one in group if "cx" in one]  # fmt: skip
        assert next(groups, None) is None
        check_places(places)


def check_places(places):
    """Pixels are a straight line of the numbers, or of their logarithms."""
    def straight(pairs):
        (a, pa), (b, pb) = min(pairs), max(pairs)
        return all(abs(p - (pa + (pb - pa) * (v - a) / ((b - a) or 1))) < 0.02 for v, p in pairs)  # fmt: skip

    assert straight([(x, cx) for cx, _, x, _ in places])
    heights = [(y, cy) for _, cy, _, y in places]
    assert straight(heights) or straight([(math.log(y), cy) for y, cy in heights if y > 0])


def check(text, report, folders):
    page = Page(text)
    outside = re.findall(r"https?://[^\"<]*|<script|<img|<link|url\((?!#)", text.replace("http://www.w3.org/2000/svg", ""))
    assert not outside, outside
    for i, folder in enumerate(folders):
        for path, value in expected(folder).items():
            told = at(report["runs"][i], path)
            assert told == value or (path == "seconds" or "second" in path) and math.isclose(told, value, rel_tol=1e-12), (path, told, value)
    seen = set()
    for cell in page.cells:
        value = at(report, cell["data-json"])
        seen.add(cell["data-json"])
        if cell["tag"] == "data":
            assert float(cell["value"]) == value and same(cell["text"], value), (cell, value)
        else:
            assert cell["text"] == value, (cell, value)
    for i in range(len(folders)):
        for key in ("done", "last_loss", "tokens_per_second", "peak_bytes", "starts.0.made", "starts.0.time"):
            assert f"runs.{i}.{key}" in seen, key
    bare = re.sub(r"rank 0", "", "".join(page.bare))
    assert not re.search(r"\d", bare), re.findall(r".*\d.*", bare)
    check_points(page, folders)


def head(event, step, layout="dp1", **more):
    return {"event": event, "step": step, "schema": "lockstep.metrics/1", "time": 1795138568.25 + step, "lockstep": "0.1.0",
            "model": "<made> & up", "parameters": 918912, "layout": layout, "seq": 128, "global_batch": 16, "microbatch": 4,
            "ranks": 1, "dtype": "f32", "steps": 700, "predicted_peak_bytes": 34571264, "predicted_sent_bytes": 0, **more}  # fmt: skip


def step(number, **more):
    loss = 2 + 4 / (1 + number / 50) + 0.1 * math.sin(number * 12.9898)
    return {"event": "step", "step": number, "samples": 16 * number, "tokens": 2048, "loss": loss, "grad_norm": 0.1 + loss / 7,
            "lr": min(number / 100, 1.0) * 3e-3, "seconds": 0.5 + (number % 7) / 100, "tokens_per_second": 2048 / (0.5 + (number % 7) / 100),
            "peak_bytes": 34571264, "sent_bytes": 0, **more}  # fmt: skip


def made_up(folder, lines):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def eventful(folder):
    """Resumed in another layout, with a spike, a step that was skipped, evaluations and an end."""
    lines = [head("start", 0)] + [step(i) for i in range(1, 401)]
    lines += [head("resume", 400, "dp2 zero1", ranks=2, dropped_lines=3, predicted_sent_bytes=7000)]
    lines += [step(i, sent_bytes=7000 if i % 2 else 6999) for i in range(401, 701)]
    lines[77]["loss"], lines[77]["grad_norm"] = 91.5, 400.25
    lines[120] |= {"event": "skip", "loss": "NaN", "grad_norm": "Infinity"}
    for i in range(100, 701, 100):
        where = next(at for at, one in enumerate(lines) if one["event"] == "step" and one["step"] == i)
        lines.insert(where + 1, {"event": "eval", "step": i, "samples": 64, "tokens": 8192, "loss": 3 + 100 / i,
                                 "perplexity": math.exp(3 + 100 / i), "seconds": 0.25})  # fmt: skip
    return made_up(folder, lines + [{"event": "save", "step": 700, "checkpoint": "x", "paused_seconds": 0.1}, {"event": "end", "step": 700}])


class Program:
    def __init__(self, lockstep):
        self.lockstep = lockstep

    def run(self, *words):
        return subprocess.run([self.lockstep, *map(str, words)], capture_output=True, text=True, timeout=300)

    def page(self, out, *folders):
        ran = self.run("report", *folders, "--html", out, "--json")
        assert ran.returncode == 0, ran.stderr
        text, report = out.read_text(), json.loads(ran.stdout)
        check(text, report, folders)
        return text, report

    def refused(self, code, part, *folders):
        ran = self.run("report", *folders, "--html", folders[0].parent / "none.html")
        assert ran.returncode == code and part in ran.stderr, (folders, ran)
        assert not (folders[0].parent / "none.html").exists()


def spoiled(text, report, folders):
    """Each change of the page is noticed."""
    y = re.findall(r'data-y="(\d\.\d+)"', text)[40]
    changes = [(f'data-y="{y}"', f'data-y="{float(y) + 1e-9}"'), ('data-json="runs.0.done">', 'data-json="runs.0.samples">'),
               (re.search(r'data-json="runs.0.last_loss">[^<]*', text)[0], 'data-json="runs.0.last_loss">2.0000'),
               (re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)"', text)[0], '<circle cx="300" cy="290"'),
               ("</footer>", " 12 steps</footer>")]  # fmt: skip
    for old, new in changes:
        assert old in text, old
        try:
            check(text.replace(old, new, 1), report, folders)
        except AssertionError:
            continue
        raise SystemExit(f"nobody noticed {new}")


def damage(program, scratch):
    good = [head("start", 0), step(1), step(2), step(3)]
    lines = [json.dumps(one) for one in good]
    for name, text, part in (
            ("empty", "", "has no whole line yet"), ("half", lines[0][:50], "has no whole line yet"),
            ("garbage", lines[0] + "\n\0\0\n" + lines[1] + "\n", "line 2"), ("headless", lines[1] + "\n", "no `start` is above it"),
            ("twice", "\n".join(lines[:2] + lines[1:2]) + "\n", "line 3: step 1 is there a second time"),
            ("backwards", "\n".join([lines[0], lines[2], lines[1]]) + "\n", "behind one that is 2"),
            ("without", lines[0] + "\n" + json.dumps({"event": "step", "step": 1}) + "\n", "line 2: it has no number `loss`")):  # fmt: skip
        folder = made_up(scratch / name, [])
        (folder / "metrics.jsonl").write_text(text)
        program.refused(2, part, folder)
    program.refused(3, "has no metrics.jsonl", scratch / "nowhere")
    cut = made_up(scratch / "cut", good)
    with open(cut / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(lines[3][:40])
    _, report = program.page(scratch / "cut.html", cut)
    assert report["runs"][0]["ending"].startswith("running") and "cut short" in report["runs"][0]["notes"][0]
    begun = program.run("report", made_up(scratch / "begun", good[:1]), "--html", scratch / "begun.html")
    assert begun.returncode == 0 and "no step yet" in (scratch / "begun.html").read_text(), begun


def main(lockstep, scratch):
    program = Program(lockstep)
    run = scratch / "real"
    words = ["train", f"{pathlib.Path(__file__).parents[2]}/examples/tiny.toml", "--mock-data", "--save", run, "--set",
             "train.eval_interval=2"]  # fmt: skip
    for more in (["--steps", 4], ["--steps", 6, "--resume", "--change", "steps", "--dp", 2]):
        trained = program.run(*words, *more)
        assert trained.returncode == 0, trained.stderr
    text, report = program.page(scratch / "real.html", run)
    told = report["runs"][0]
    assert [one["step"] for one in told["checkpoints"]] == [6, 4] and told["notes"] == [], told["notes"]
    assert [one["as_predicted"] for one in told["starts"]] == [4, 2] and told["starts"][1]["sent_bytes"] > 0
    assert "<svg" in text[text.index('class="figure"') :] and "packages" in [one["key"] for one in told["environment"]]
    other = eventful(scratch / "other")
    text, report = program.page(scratch / "both.html", run, other)
    assert "model" in {one["name"] for one in report["differences"]}
    assert all(len({one.get("A"), one.get("B")}) == 2 for one in report["differences"])
    spoiled(text, report, [run, other])
    long = made_up(scratch / "long", [head("start", 0)] + [step(i) for i in range(1, 100_001)])
    text, report = program.page(scratch / "long.html", long, other)
    assert report["thinned"] and report["runs"][0]["curves"]["loss"]["of"] == 100_000 and len(text) < 1_000_000, len(text)
    damage(program, scratch)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1], pathlib.Path(folder))
