// The words of a page of `lockstep report`, as page.cc fills them in (cli/page.h).
#pragma once

#include <string_view>

namespace lockstep::cli {

inline constexpr std::string_view kReportHead = R"html({!head}
<title>{runs.0.model raw}: training report</title>
<style>
{!style}</style>
</head>
<body>
<header>
<p class="kind">Training report</p>
)html";

// Of a page of one run.
inline constexpr std::string_view kReportOne = R"html(<h1>{runs.0.model}, {runs.0.layout code}</h1>
<p>{runs.0.parameters scaled} parameters in {runs.0.dtype}; {runs.0.global_batch whole} sequences of {runs.0.seq whole}
tokens a step, {runs.0.microbatch whole} at a time, on ranks: {runs.0.ranks whole}.</p>
<pre>{runs.0.name code}</pre>
</header>
)html";

// Of a page of several.
inline constexpr std::string_view kReportSeveral = R"html(<h1>Runs compared</h1>
</header>
<section id="answer">
<h2>The answer</h2>
{#runs | =label b | run=name | model=model | layout=layout code | steps=done whole | loss=last_loss digits
| validation=eval.loss digits | best validation=best_eval.loss digits | at step=best_eval.step whole
| tokens/s=tokens_per_second whole | peak=peak_bytes bytes | status=ending}{?lowest}<p>The lowest validation loss, {lowest.loss
digits}, is that of {lowest.label b} after step {lowest.step whole}.</p>
{/}</section>
)html";

inline constexpr std::string_view kReportCurves = R"html(<section id="curves">
<h2>Curves</h2>
<div class="charts">
{!curves}</div>
<p class="note">{?several}Dashes with dots are losses of validation samples. {:}Dots are losses of validation samples.
{/}{?resumed}An upright line is where a run resumed. {/}{?thinned}Of a curve of more than {most_points whole} points the
lowest and the highest of steps beside each other are shown. {/}A point tells its numbers.</p>
</section>
{?several}<section id="differences">
<h2>Settings that differ</h2>
{?differences.0}{!differences}{:}<p>None, of the settings that their folders tell.</p>
{/}</section>
{/})html";

// Of each run; @ is its path.
inline constexpr std::string_view kReportTiles = R"html(<dl class="tiles">
<div><dt>Steps</dt><dd class="big">{@.done whole}</dd>
<dd>of {@.steps whole}; {@.ending}{?@.has_skipped}; {@.skipped whole} skipped{/}</dd></div>
<div><dt>Loss</dt><dd class="big">{@.last_loss digits}</dd>
<dd>from {@.first_loss digits}</dd></div>
{?@.eval}<div><dt>Validation loss</dt><dd class="big">{@.eval.loss digits}</dd>
<dd>perplexity {@.eval.perplexity plain} after step {@.eval.step whole}; the lowest is {@.best_eval.loss digits},
after step {@.best_eval.step whole}</dd></div>
{/}<div><dt>Tokens a second</dt><dd class="big">{@.tokens_per_second whole}</dd>
<dd>{@.tokens whole} tokens in {@.seconds seconds} of steps</dd></div>
<div><dt>Peak of tensors</dt><dd class="big">{@.peak_bytes bytes}</dd>
<dd>on rank 0{?@.starts.0.predicted_peak_bytes}, predicted {@.starts.0.predicted_peak_bytes bytes}{/}</dd></div>
<div><dt>Sent in a step</dt><dd class="big">{@.sent_bytes bytes}</dd>
<dd>by rank 0{?@.starts.0.predicted_sent_bytes}, predicted {@.starts.0.predicted_sent_bytes bytes}{/}</dd></div>
</dl>
{!notes}
)html";

inline constexpr std::string_view kReportRun = R"html(<section>
<h2>{?several}{@.label b}: memory and traffic{:}Memory and traffic, predicted and measured{/}</h2>
{#@.starts | since step=step whole | layout=layout code | steps=made whole | peak predicted=predicted_peak_bytes bytes
| measured=peak_bytes bytes | sent predicted=predicted_sent_bytes bytes | measured=sent_bytes bytes
| exactly so=as_predicted whole | tokens/s=tokens_per_second whole}<p class="note">Of rank 0: tensors at their peak, and
bytes sent in a step. Predictions are of a step of the whole batch, from before the first step; measured is the most of any
step, and the last count but one that of steps in which both were what was predicted, to the byte.</p>
</section>
<section>
<h2>{?several}{@.label b}: {/}A step</h2>
{?@.has_timeline}<div class="figure">
{!timeline}</div>
{:}<p>There is no picture{?@.no_timeline}: {@.no_timeline}{/}.</p>
{/}</section>
<section>
<h2>{?several}{@.label b}: {/}Starts, checkpoints, environment</h2>
{#@.starts | =event | at=time date | after step=step whole | layout=layout code | ranks=ranks whole
| Lockstep=lockstep | ?lines dropped=dropped_lines whole}{?@.checkpoints.0}<h3>Checkpoints</h3>
{#@.checkpoints | folder=name | step=step whole | samples=samples whole | tokens=tokens whole | saved under=layout code
| files=bytes bytes | digest of its manifest=digest code}{/}<p class="note">{@.saves whole} saves; the manifest has the
digests of all bytes of its checkpoint.</p>
{?@.environment.0}<h3>Environment of the last start</h3>
{#@.environment short | =key | =value code}{/}</section>
<section>
<h2>{?several}{@.label b}: {/}Settings</h2>
{?@.config}<pre class="config">{@.config code}</pre>
{:}<p>The folder has no config.toml.</p>
{/}</section>
)html";

inline constexpr std::string_view kReportEnd = R"html(<footer>Lockstep {version}; {schema}</footer>
</body>
</html>
)html";

}  // namespace lockstep::cli
