// How pages begin, and how they look: wide, narrow, dark and on paper. No font, picture or script
// from elsewhere.
#pragma once

#include <string_view>

namespace lockstep::cli {

inline constexpr std::string_view kPageHead = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">)html";

inline constexpr std::string_view kPageStyle = R"css(
:root { --bg: #fff; --card: #f5f7f9; --ink: #1b2028; --dim: #59636f; --line: #dbe0e6; --key: #00548c; --bad: #b00020;
  --track: #e8ecf0; --compute: #00548c; --recompute: #a8578a; --comm: #d55e00; --bubble: #a9b1bb; --optimizer: #009e73;
  --spread: #d3d8de; --m0: #00548c; --m1: #4f9bd0; --m2: #b3d4ec; --m3: #d55e00; --m4: #f0b429; --m5: #8a6d3b;
  --m6: #c3c9d0; }
@media screen and (prefers-color-scheme: dark) {
  :root { --bg: #14171c; --card: #1d2128; --ink: #e4e8ee; --dim: #9aa5b3; --line: #323943; --key: #7cc0f5;
    --bad: #ff8a93; --track: #2a3038; --compute: #3d8fcc; --recompute: #c77fae; --comm: #e8833a; --bubble: #77818e;
    --optimizer: #2bb58d; --spread: #566070; --m0: #2f7fbd; --m1: #6cb2e4; --m2: #bcdcf2; --m3: #e2762a;
    --m4: #f0c04f; --m5: #b3925a; --m6: #5f6976; }
  .figure svg, .chart svg { filter: invert(.92) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.5rem 4rem; background: var(--bg); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { margin: 0; font-size: 2rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 0 0 .8rem; font-size: 1.3rem; }
h3 { margin: 1.8rem 0 .5rem; font-size: 1rem; }
p { margin: .5rem 0; max-width: 48rem; }
section { margin-top: 2.5rem; padding-top: 1.5rem; border-top: 1px solid var(--line); }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; font-size: .875em; }
pre { margin: 1rem 0 0; padding: .7rem .9rem; background: var(--card); border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
data { white-space: nowrap; font-variant-numeric: tabular-nums; }
small { font-size: .8125rem; color: var(--dim); }
.kind { margin: 0; color: var(--dim); font-size: .875rem; letter-spacing: .06em; text-transform: uppercase; }
.note { color: var(--dim); font-size: .875rem; }
#answer { border: 0; padding: 1.3rem 1.5rem; background: var(--card); border-radius: 10px; border-left: 5px solid var(--key); }
#answer.unfit { border-left-color: var(--bad); }
#answer.unfit h2 { color: var(--bad); }
.layout { margin: 0 0 1.2rem; max-width: none; font-size: 1.25rem; font-weight: 600; color: var(--key);
  overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1.2rem 2rem; margin: 0; }
dt { font-size: .875rem; color: var(--dim); }
dd { margin: 0; font-size: .8125rem; color: var(--dim); }
dd.big { font-size: 1.75rem; line-height: 1.25; font-weight: 650; color: var(--ink); }
.notes { margin: 1.2rem 0 0; padding-left: 1.2rem; font-size: .9375rem; }
table { width: 100%; border-collapse: collapse; font-size: .875rem; }
th { text-align: left; font-weight: 600; color: var(--dim); vertical-align: bottom; }
th, td { padding: .4rem .9rem .4rem 0; border-bottom: 1px solid var(--line); }
td { vertical-align: top; }
th:last-child, td:last-child { padding-right: 0; }
table.short { max-width: 44rem; }
th.n, td.n { text-align: right; }
td.n { white-space: nowrap; }
.bars { display: grid; gap: .45rem; }
.bar { display: grid; grid-template-columns: minmax(14rem, 26rem) 1fr 5rem 4rem; gap: 1rem; align-items: center; }
.bar.mem { grid-template-columns: 7rem 1fr 5rem; }
.bar > data { text-align: right; font-size: .875rem; }
.track { position: relative; display: flex; height: 1rem; background: var(--track); border-radius: 3px; overflow: hidden; }
.track.whole { height: 1.6rem; margin-bottom: 1.2rem; }
.track.whole i + i { border-left: 1px solid var(--bg); }
.mem .track { height: 1.25rem; overflow: visible; background: var(--track); }
.track b { position: absolute; top: -.15rem; bottom: -.15rem; border-left: 2px dashed var(--bad); }
.track b.end { border-left-style: solid; }
.legend { max-width: none; }
.legend span { margin-right: .9em; white-space: nowrap; }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .35em; border-radius: 2px; vertical-align: -.1em; }
.compute, .forward, .backward, .head { background: var(--compute); } .recompute { background: var(--recompute); }
.comm, .tensor, .context, .expert, .pipe, .data { background: var(--comm); }
.bubble { background: var(--bubble); } .optimizer { background: var(--optimizer); } .spread { background: var(--spread); }
.m0 { background: var(--m0); } .m1 { background: var(--m1); } .m2 { background: var(--m2); } .m3 { background: var(--m3); }
.m4 { background: var(--m4); } .m5 { background: var(--m5); } .m6 { background: var(--m6); }
.figure { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
.figure svg { display: block; width: 100%; min-width: 44rem; height: auto; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem; }
.chart { border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
.chart svg { display: block; width: 100%; height: auto; }
pre.config { margin: 0; columns: 2; column-gap: 2rem; }
.range { position: relative; height: 2.2rem; margin: 2rem 0 1.8rem; background: var(--track); border-radius: 4px; }
.range i, .range b { position: absolute; top: 0; bottom: 0; }
.range span { position: absolute; top: 100%; width: auto !important; font-size: .75rem; transform: translateX(-50%);
  white-space: nowrap; }
.range .above { top: auto; bottom: 100%; }
.half { background: var(--m1); } .most { background: var(--m2); }
.range b { border-left: 2px solid #1b2028; } .range b.now { border-left-width: 4px; }
footer { margin-top: 2rem; color: var(--dim); font-size: .8125rem; }
@media screen and (max-width: 44rem) {
  body { padding: 1.2rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  pre.config { columns: 1; }
  #answer { padding: 1rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); gap: 1rem; }
  dd.big { font-size: 1.4rem; }
  .bar { grid-template-columns: 1fr auto 3.5rem; gap: .1rem .8rem; }
  .bar > span:first-child { grid-column: 1 / -1; }
  .bar.mem { grid-template-columns: 3.6rem 1fr 4.3rem; }
  .bar.mem > span:first-child { grid-column: auto; font-size: .8125rem; }
  thead { display: none; }
  table, tbody, td { display: block; }
  tr { display: grid; grid-template-columns: repeat(3, 1fr); gap: .3rem .8rem; padding: .7rem 0;
    border-bottom: 1px solid var(--line); }
  td { grid-column: 1 / -1; padding: 0; border: 0; }
  td.n { grid-column: auto; text-align: left; white-space: normal; }
  td.n::before { content: attr(data-label); display: block; font-size: .75rem; color: var(--dim); }
  td:first-child { grid-column: 1 / 3; font-weight: 600; }
  td.n:first-child { grid-column: auto; }
  td:has(span:empty) { display: none; }
}
@page { margin: 15mm; }
@media print {
  html { font-size: 11px; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  section { margin-top: 1.2rem; padding-top: 1rem; }
  h2, h3, h3 + p, thead { break-after: avoid; }
  tr, .bar, .figure, .chart, .tiles > div, #answer, .range, li { break-inside: avoid; }
  th, td { padding: .2rem .7rem .2rem 0; }
  .figure svg { min-width: 0; }
  .charts { grid-template-columns: 1fr 1fr; }
}
)css";

}  // namespace lockstep::cli
