"""What there is at `metrics.listen`, for people: `python -m worker.adapters.http.paths > deploy/http.md`."""

from __future__ import annotations

from worker.adapters.http.routes import ANSWER_S, DEFAULT_LIMIT, MOST_LIMIT
from worker.adapters.http.server import CPU_SHARE
from worker.base.status import MOST_FEATURES, MOST_TREES, RECENT_DEAD_LETTERS

PATHS = {
    "/": "A page for people: curves of the last quarter of an hour, partitions, models, dead letters. It asks for the"
    " paths below, and no other host for anything.",
    "/metrics": "The [metrics](metrics.md), in the formats of Prometheus and OpenMetrics.",
    "/live": "A probe: 200 while the loop moves, else 503 and why.",
    "/ready": "A probe: 200 once all partitions of the worker are live, also where it has none, and the forwarder of"
    " `input.repartition` is in its group; else 503 and why.",
    "/status": "The last second as JSON: partitions, the models with the most traffic, the last"
    f" {RECENT_DEAD_LETTERS} dead letters (where and why, and nothing of their values); with `run --processes` also the"
    " ports of all workers of the command (`workers`), this one's (`port`) among them: the others' pages have the other"
    " partitions.",
    "/history": "Seconds of the last quarter of an hour as JSON, a column for each figure.",
    "/models": f"All models as JSON, in pages: `?limit=` up to {MOST_LIMIT}, {DEFAULT_LIMIT} if it is not given, and"
    " `?offset=`; `next` is the next page.",
    "/models/KEY": "One model as JSON: recent loss beside that of the trees alone and of the baseline, scores, classes,"
    " the features that its forecasts rest on, depth, size; of an adaptive algorithm its weights of features and its"
    " trees; with `output.explain` what moved its forecasts. KEY is percent-encoded UTF-8; `/models?key=KEY` is the"
    " same. Where several partitions have such a model, `?partition=` names one.",
}
_ROWS = "\n".join(f"| `{path}` | {sentence} |" for path, sentence in PATHS.items())
REFERENCE = f"""# What a worker answers over HTTP

At `metrics.listen`, to GET and HEAD; nothing of it changes anything. Made by `python -m worker.adapters.http.paths`.

| Path | Answer |
| --- | --- |
{_ROWS}

**Who may look.** By default `metrics.listen` is of the machine itself; a request must then name it by an address or as
localhost, so that no page of the web can read it under a name of its own. Where it listens for other machines it has
any number of names, and answers to all of them: there `metrics.token` keeps others out, and a warning says so where
there is none. With `metrics.token` all but the probes and
the empty page asks for `Authorization: Bearer TOKEN`; the page asks for the token and keeps it in its tab, Prometheus
has `authorization: {{credentials_file: ...}}` for it. There is no TLS: where the token travels through a network, put a
proxy before the worker; the page may lie below any path of it.

**Features.** `/models/KEY` says up to three things of them, of at most {MOST_FEATURES} features each; the categories of
a feature count as one.

- `features`: `share` of the depth of its forecasts that is due to splits on the feature: where the forest cuts. A plain
  forest also cuts features that are of no use; `weight` and `moved` tell those apart.
- `adaptation.feature_weights`, of the algorithms adaptive-classifier and adaptive-regressor: `weight` is how many times
  as likely a cut of the feature is as without weights. It comes from how much better the labels were forecast behind
  recent splits on the feature than without them, relative to the other features, earlier ones counting less. 1 is the
  mean; a feature that was of no use of late has half of that over the number of features at least. It is no cause and
  no effect: features that say the same share what they say, and one that helps only beside another may have little.
- `attributions`, where `output.explain` is on: `moved` is how far the feature moved one of the last thousands of
  forecasts, up or down, in the mean: in probability of the class that was named, or in the label's unit.

`adaptation` also has the number of trees that forecasts are made of (`forecasting`), of those that were replaced by
better ones so far (`swaps`), and the first {MOST_TREES} `trees`: the `role` of each (`active`; `standing-by`: of the
background, and good enough to forecast; `silent`: young, or too far behind), its `age` in labels, and the recent mean
`loss` of its own forecasts.

**What it costs.** The loop shows itself once a second, whoever looks. Questions about models take a hundredth of its
time at most; one that it has not answered within {ANSWER_S:g} s gets 503. All answers together take at most
{100 * CPU_SHARE:g} % of one CPU in the long run: what comes beyond gets 503, but for the probes. To refuse a
request takes time as well: a flood of them is a firewall's matter. Slow clients are given up, first those that take
longest to send their request.

**Errors** are JSON with a sentence under `error`; the probes, and what is no request or a fault of the server, get a
line of text. Keys and reasons are what producers sent: whoever shows them in HTML must escape them, as the page does.
"""


if __name__ == "__main__":
    print(REFERENCE, end="")
