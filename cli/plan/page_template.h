// The words of a page of `lockstep plan --report`, as PlanPage in page.cc fills them in (page.h).
#pragma once

#include <string_view>

namespace lockstep::cli {

inline constexpr std::string_view kPageTemplate = R"html({!head}
<title>{model raw} on {cluster raw}: training plan</title>
<style>
{!style}</style>
</head>
<body>
<header>
<p class="kind">Training plan</p>
<h1>{model} on {cluster}</h1>
<p>{global_batch whole} sequences of {seq whole} tokens a step, {report.tokens_per_step scaled} tokens in all; products
in {dtype}; objective {objective}.</p>
<pre>{report.command code}</pre>
</header>
<section id="answer"{?plans.0.fits}{:} class="unfit"{/}>
<h2>{?plans.0.fits}The answer{:}Does not fit{/}</h2>
<p class="layout">{plans.0.name code}</p>
<dl class="tiles">
<div><dt>Step time</dt><dd class="big">{plans.0.step_s.total seconds}</dd>
<dd>P50 {plans.0.step_s.p50 seconds}, P95 {plans.0.step_s.p95 seconds}</dd></div>
<div><dt>Tokens a second</dt><dd class="big">{plans.0.tokens_per_s scaled}</dd>
<dd>{report.tokens_per_s_per_device scaled} a device</dd></div>
<div><dt>MFU</dt><dd class="big">{plans.0.mfu.causal percent}</dd>
<dd>of the {plans.0.mfu.peak} peak; {plans.0.mfu.full percent} without a causal mask</dd></div>
<div><dt>Memory of a device</dt><dd class="big">{plans.0.memory.device_bytes memory}</dd>
<dd>of {plans.0.memory.device_has_bytes memory}, at the {plans.0.memory.event} of pipeline rank
{plans.0.memory.pipeline_rank whole}; out of memory in {plans.0.memory.out_of_memory percent} of runs like
it</dd></div>
<div><dt>Goodput</dt><dd class="big">{plans.0.goodput.share percent}</dd>
<dd>a failure every {plans.0.goodput.mtbf_s seconds}, saves every {plans.0.goodput.save_every_s seconds}</dd></div>
{?plans.0.run}<div><dt>Days</dt><dd class="big">{plans.0.run.days days}</dd>
<dd>for {plans.0.run.tokens scaled} tokens, failures counted</dd></div>
<div><dt>Device-hours</dt><dd class="big">{plans.0.run.device_hours scaled}</dd>
<dd>{plans.0.devices whole} devices</dd></div>
{?plans.0.run.money}<div><dt>Cost</dt><dd class="big">{plans.0.run.money scaled}</dd>
<dd>at {report.price plain} a device-hour</dd></div>
{/}{/}</dl>
{!warnings}{?plans.0.runs_here}{:}<p class="note">Priced; this version of Lockstep does not run it.</p>
{/}</section>
<section id="alternatives">
<h2>Alternatives, and why not</h2>
{#plans | =report.plans.*.rank whole | layout=name | step=step_s.total seconds | slower=report.plans.*.slower signed
| tied=tied plain | MFU=mfu.causal percent | memory=memory.device_bytes memory
| bubble=report.plans.*.bubble_share percent | exposed comm=report.plans.*.exposed_share percent
| why not=report.plans.*.why}{?own}<p>Yours, {own.name code}, takes {own.step_s.total seconds}, {report.own.slower
signed} and {own.memory.device_bytes memory}: {report.own.why}.</p>
{/}<p class="note">The best of {layouts whole} layouts, of which {priced whole} were priced and {simulated whole}
simulated pass by pass. Tied: the difference is smaller than the median error of predicting published runs.</p>
<h3>One choice changed</h3>
{#report.neighbours | change=change | time of a token=slower signed | layout=name | where it goes=why}<h3>Placement by
rule</h3>
{#report.rules | rule=change | time of a token=slower signed | layout=name | where it goes=why}</section>
<section id="step">
<h2>What the step is made of</h2>
{!step}<p class="note legend"><span><i class="compute"></i>compute</span>
<span><i class="recompute"></i>recompute</span> <span><i class="comm"></i>exposed communication</span>
<span><i class="bubble"></i>bubble</span> <span><i class="optimizer"></i>optimizer</span>
<span><i class="spread"></i>slower devices</span> </p>
{?plans.0.step_s.by_units}<p class="note">Op by op, as this version would run it: {plans.0.step_s.by_units
seconds}.</p>
{/}</section>
<section id="memory">
<h2>Memory of each pipeline rank</h2>
<p class="note legend"><span><i class="m0"></i>weights</span> <span><i class="m1"></i>gradients</span>
<span><i class="m2"></i>optimizer</span> <span><i class="m3"></i>activations</span>
<span><i class="m4"></i>logits</span> <span><i class="m5"></i>transients</span>
<span><i class="m6"></i>reserve and context</span> </p>
<div class="bars">{!memory}</div>
<p class="note">The lines are what a layout may use, {report.usable_bytes memory}, and what a device has,
{plans.0.memory.device_has_bytes memory}: {report.headroom percent} stays free. Each rank is shown at its own fullest
moment.</p>
{#plans.0.stages | rank=pipeline_rank whole | weights=weights memory | gradients=gradients memory
| optimizer=optimizer memory | activations=activations memory | logits=logits memory | transients=transients memory
| device=device_bytes memory | fullest at=event}</section>
<section id="timeline">
<h2>Timeline of the pipeline</h2>
{?report.timeline}<div class="figure">
{!timeline}</div>
<p class="note">The first microbatches alone, {report.timeline.shape}: {report.timeline.step_s seconds}, of which the
busiest rank waits {report.timeline.bubble_s seconds} and holds at most {report.timeline.peak_microbatches plain}
microbatches. The others follow in the same rhythm; data-parallel communication, optimizer and slower devices come on
top.</p>
{:}<p>There is no pipeline: every device runs its microbatches one after the other.</p>
{/}</section>
<section id="sensitivity">
<h2>What would change the answer</h2>
{#report.what_if | with=change | time of a token=slower signed | layout=name | where it goes=why}<h3>Rates whose error
could change the choice</h3>
{?report.flips.0}{#report.flips | rate=rate | what it is=what | if off by=change signed | then best=winner}{:}<p>None,
within their bands and among the layouts above.</p>
{/}</section>
<section id="cost">
<h2>Cost</h2>
{?plans.0.run}<p>{plans.0.run.tokens scaled} tokens at {plans.0.tokens_per_s scaled} a second, of which failures and
saves leave {plans.0.goodput.share percent}, take {plans.0.run.days days} days on {plans.0.devices whole} devices:
{plans.0.run.device_hours scaled} device-hours{?plans.0.run.money}, at {report.price plain} each {plans.0.run.money
scaled}{/}. How much more or less it may be is below.</p>
{:}<p>Not asked: <code>--tokens</code> tells days and device-hours, <code>--price</code> what they cost.</p>
{/}</section>
<section id="uncertainty">
<h2>How sure this is</h2>
{!range}<p class="note legend"><span><i class="half"></i>half of runs</span> <span><i class="most"></i>nine of ten</span>
</p>
<p class="note">Thin lines: P50 and P95 of held-out sources.</p>
{#report.quantiles short | =what | step=step_s seconds | ?days=days days | ?device-hours=device_hours scaled
| ?cost=money scaled}<h3>The evidence</h3>
<p>Predictions were compared with training runs that others measured and published. An error is the logarithm of
predicted over measured. These runs are of sources that nobody had looked at while the model was made:</p>
{#report.evidence.unseen | runs=runs whole | sources=sources whole | timed=timed whole
| median error=median_percent percents | p90=p90_percent percents
| of constant utilisation=constant_utilisation_percent percents | of memory=memory_median_percent percents
| verdicts on fitting=verdicts whole | of them right=verdicts_right whole}<p>On held-out sources that were looked at,
if seldom, the median error is {report.evidence.held_out.median_percent percents}, p90
{report.evidence.held_out.p90_percent percents}, bias {report.evidence.held_out.bias_percent percents}. Errors within
one source are alike: a run of your own tells most.</p>
</section>
<section id="assumed">
<h2>What was assumed</h2>
<p>{report.cluster.devices whole} x {report.cluster.device.title}: {report.cluster.device.memory_bytes memory} at
{report.cluster.device.memory_bytes_per_s bandwidth}; products in bf16 {report.cluster.device.peak_bf16_flops flops}, in
fp8 {report.cluster.device.peak_fp8_flops flops}.</p>
{#report.cluster.tiers short | network=name | devices=devices whole | speed, each way=bytes_per_s.value bandwidth
| latency=latency_s.value seconds | these are=bytes_per_s.origin}<h3>Rates of the device</h3>
<p>Of the family {report.rates.family}{?report.rates.calibrated}, fitted on published runs.{:}, borrowed from another
family: times are rough.{/}</p>
{#report.rates.terms | rate=rate | what it is=what | value=value plain | known within=band percent
| source=source}<h3>The software</h3>
{#report.stack short | trait=what | value=value plain}<p class="note">A device fails once in {report.mtbf_device_hours
whole} hours; a save holds training up for {report.save_s seconds}, and a restart takes {report.restart_s seconds}.</p>
</section>
<section id="sources">
<h2>Sources</h2>
<ul>
<li>Errors on published runs, source by source: docs/accuracy.md of Lockstep, written by
<code>lockstep backtest</code>.</li>
<li>How layouts are sought and priced: docs/planning.md.</li>
<li>Failures: Llama Team, <cite>arXiv 2407.21783</cite>; the best interval between saves: Daly, <cite>2006</cite>.</li>
<li>Sharded states: Rajbhandari et al., <cite>arXiv 1910.02054</cite>; activations: Korthikanti et al.,
<cite>arXiv 2205.05198</cite>.</li>
<li>Placement by rule: Narayanan et al., <cite>arXiv 2104.04473</cite>.</li>
</ul>
<footer>Lockstep {report.version}; {schema}</footer>
</section>
</body>
</html>
)html";

}  // namespace lockstep::cli
