"""The dashboards, as code: `python deploy/grafana/generate.py` writes them into dashboards/ beside it.

Needs grafana-foundation-sdk, which the extra `test` brings.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import GraphGradientMode, LegendDisplayMode, LegendPlacement, SortOrder
from grafana_foundation_sdk.models.common import TooltipDisplayMode as Tooltip
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

FOLDER = Path(__file__).parent / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT, STAT_HEIGHT = 8, 4


class Query(NamedTuple):
    """PromQL, in which WORKERS stands for the selector of the workers shown; and the legend of its series."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """Curves over time, or with `red_from` one number that is green below it. `width` is in 24ths."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 8
    red_from: float | None = None


class Row(NamedTuple):
    """Panels under a headline."""

    title: str
    panels: tuple[Panel, ...]


def by_partition(metric: str) -> Query:
    """A gauge of the partitions; each has one owner, but for the moment in which it goes from one to another."""
    return Query(f"max by (partition) ({metric}{{WORKERS}})", "{{partition}}")


def by_input_partition(metric: str) -> Query:
    """A gauge of the partitions that are forwarded; each has one forwarder, but while it goes to another one."""
    return Query(f"max by (input_partition) ({metric}{{WORKERS}})", "input, {{input_partition}}")


def by_model(metric: str) -> Query:
    """A gauge of the top models."""
    return Query(f"max by (model) ({metric}{{WORKERS}})", "{{model}}")


def quantile(q: str, metric: str) -> Query:
    """Of a histogram, over all workers."""
    return Query(
        f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{{WORKERS}}[$__rate_interval])))", f"quantile {q}"
    )


def rate(metric: str, legend: str = "") -> Query:
    """Of a counter, over all workers."""
    return Query(f"sum(rate({metric}{{WORKERS}}[$__rate_interval]))", legend)


def mean(summary: str, legend: str = "") -> Query:
    """Of a summary, over all workers."""
    total, count = (f"sum(rate({summary}_{part}{{WORKERS}}[$__rate_interval]))" for part in ("sum", "count"))
    return Query(f"{total} / ({count} > 0)", legend)


OVERVIEW = (
    Row(
        "Is it healthy?",
        (
            Panel("Workers not ready", "Workers that do not answer, or whose /ready says what is in the way.", "short",
                  (Query("sum(1 - up{WORKERS}) + (sum(1 - amf_ready{WORKERS}) or vector(0))"),), 4, 1),
            Panel("Partitions stopped", "A guarantee would have been broken; the log says which.", "short",
                  (Query('sum(amf_partition_state{WORKERS, state="stopped"})'),), 4, 1),
            Panel("Partitions not live", "Opening, replaying or waiting.", "short",
                  (Query('sum(amf_partition_state{WORKERS, state=~"opening|replay|waiting"})'),), 4, 1),
            Panel("Dead letters", "Share of the events that were rejected.", "percentunit",
                  (Query("max(job:amf_dead_letters:ratio10m{WORKERS})"),), 4, 0.05),
            Panel("Useless models", "Share of the models whose recent loss is above the baseline's.", "percentunit",
                  (Query('sum(amf_models_judged{WORKERS, verdict="useless"})'
                         " / (sum(amf_models_judged{WORKERS}) > 0)"),), 4, 0.5),
            Panel("Oldest checkpoint", "Of the partitions that have learned since.", "s",
                  (Query("max((time() - amf_checkpoint_last_timestamp_seconds{WORKERS})"
                         " * (amf_checkpoint_replay_cost_seconds{WORKERS} >= bool 0.001))"),), 4, 3600),
        ),
    ),
    Row(
        "Does it keep up?",
        (
            Panel("Events", "Taken in and committed, by outcome.", "cps",
                  (rate("amf_events_total", "events"), rate("amf_predictions_total", "predictions"),
                   rate("amf_learned_samples_total", "labels learned"))),
            Panel("Lag", "For how long records wait, by partition; with input.repartition also to be forwarded.", "s",
                  (by_partition("amf_consumer_lag_seconds"), by_input_partition("amf_forwarder_lag_seconds"))),
            Panel("Latency", "From the timestamp of a record to the commit of its prediction.", "s",
                  (quantile("0.5", "amf_end_to_end_latency_seconds"),
                   quantile("0.99", "amf_end_to_end_latency_seconds"))),
            Panel("Events by partition", "Taken in and committed.", "cps",
                  (Query("sum by (partition) (rate(amf_partition_events_total{WORKERS}[$__rate_interval]))",
                         "{{partition}}"),)),
            Panel("CPU", "Of each worker, in processors.", "short",
                  (Query("rate(process_cpu_seconds_total{WORKERS}[$__rate_interval])", "{{instance}}"),)),
            Panel("Memory", "Of each worker, and of the models in it.", "bytes",
                  (Query("process_resident_memory_bytes{WORKERS}", "{{instance}}"),
                   Query("amf_model_bytes{WORKERS}", "{{instance}}, models"))),
            Panel("Dead letters by code", "What the codes mean is in worker/codec/README.md.", "cps",
                  (Query("sum by (code) (rate(amf_dead_letters_total{WORKERS}[$__rate_interval])) > 0"
                         " or sum(rate(amf_dead_letters_total{WORKERS}[$__rate_interval]))", "{{code}}"),)),
            Panel("Features and labels that changed their kind", "Numbers that came as text within an hour, or text as"
                  " numbers; the log names them.", "short",
                  (Query("sum by (of, change) (increase(amf_kind_changes_total{WORKERS}[1h]))", "{{of}} {{change}}"),)),
        ),
    ),
    Row(
        "Does it learn?",
        (
            Panel("Log-loss", "Mean over the labelled predictions of all models of classes.", "short",
                  (mean("amf_log_loss", "log-loss"),), 12),
            Panel("Loss against baseline", "Of the top models; above 1 the features are of no use.", "short",
                  (Query("max by (model) (model:amf_recent_loss:ratio_baseline{WORKERS})", "{{model}}"),), 12),
        ),
    ),
)  # fmt: skip

LEARNING = (
    Row(
        "Are the models any use?",
        (
            Panel("Loss against baseline", "Recent loss over that of a forecast that knows the labels alone: below 1"
                  " the features are of use.", "short",
                  (Query("max by (model) (model:amf_recent_loss:ratio_baseline{WORKERS})", "{{model}}"),)),
            Panel("Drift", "Recent loss against its own mean over a day: above 1 what was learned holds less.", "short",
                  (Query('max by (model) (model:amf_recent_loss:ratio_1d{WORKERS, forecast="calibrated"})',
                         "{{model}}"),)),
            Panel("Trees replaced", "By better ones within ten minutes, of the top models of adaptive algorithms: their"
                  " answer to change.", "short",
                  (Query("max by (model) (clamp_min(delta(amf_model_swaps{WORKERS}[10m]), 0))", "{{model}}"),)),
            Panel("Feature weights", "The largest of the top models of adaptive algorithms: how much likelier a cut is"
                  " of the feature than without weights, 1 in the mean.", "short",
                  (Query("max by (model, feature) (amf_model_feature_weight{WORKERS})", "{{model}}: {{feature}}"),)),
            Panel("Worst models", "Recent loss over the baseline's, of the models where it is largest.", "short",
                  (by_model("amf_worst_model_loss_ratio"),)),
            Panel("Models judged", "With enough labels to say whether they are any use.", "short",
                  (Query("sum by (verdict) (amf_models_judged{WORKERS})", "{{verdict}}"),)),
            Panel("Recent loss", "Of the top models: nats for classes, squared error for numbers.", "short",
                  (Query('max by (model) (amf_model_recent_loss{WORKERS, forecast="calibrated"})', "{{model}}"),)),
            Panel("Baseline", "Loss of a forecast that knows the labels alone. Where it moves, the labels do.", "short",
                  (Query('max by (model) (amf_model_recent_loss{WORKERS, forecast="baseline"})', "{{model}}"),)),
            Panel("Calibration", "Recent loss over that of the trees alone: below 1 it is of use.", "short",
                  (Query('max by (model) (amf_model_recent_loss{WORKERS, forecast="calibrated"} / ignoring (forecast)'
                         ' (amf_model_recent_loss{WORKERS, forecast="trees"} > 0))', "{{model}}"),)),
        ),
    ),
    Row(
        "Are probabilities what they say?",
        (
            Panel("Ranking", "Area under the ROC curve of the last labels of the top models; 0.5 is guessing.", "short",
                  (by_model("amf_model_auc"),)),
            Panel("Calibration error", "Mean distance of the probability of the named class from the share of those"
                  " that were right, in ten bins; below 0.02 is good.", "short",
                  (Query("sum(abs(sum by (confidence) (rate(amf_confidence_sum{WORKERS}[$__rate_interval]))"
                         " - sum by (confidence) (rate(amf_confidence_correct_total{WORKERS}[$__rate_interval]))))"
                         " / (sum(rate(amf_confidence_count{WORKERS}[$__rate_interval])) > 0)", "calibration error"),)),
            Panel("Right, by probability", "Share of the predictions that named the label, by the first decimal of the"
                  " probability that they gave it.", "percentunit",
                  (Query("sum by (confidence) (rate(amf_confidence_correct_total{WORKERS}[$__rate_interval]))"
                         " / (sum by (confidence) (rate(amf_confidence_count{WORKERS}[$__rate_interval])) > 0)",
                         "{{confidence}}"),)),
        ),
    ),
    Row(
        "All models together",
        (
            Panel("Log-loss", "Mean over labelled predictions.", "short", (mean("amf_log_loss", "log-loss"),)),
            Panel("Accuracy", "Share of the labelled predictions that named the label.", "percentunit",
                  (Query("sum(rate(amf_correct_predictions_total{WORKERS}[$__rate_interval]))"
                         " / (sum(rate(amf_log_loss_count{WORKERS}[$__rate_interval])) > 0)", "accuracy"),)),
            Panel("Coverage", "Labels between the 5 % and the 95 % quantile, should be 0.9. And the mean error, in the"
                  " label's unit. Of models of numbers.", "short",
                  (Query("sum(rate(amf_covered_predictions_total{WORKERS}[$__rate_interval]))"
                         " / (sum(rate(amf_squared_error_count{WORKERS}[$__rate_interval])) > 0)", "coverage"),
                   mean("amf_absolute_error", "mean error"))),
            Panel("Depth of leaves", "In edges, mean over trees.", "short",
                  (quantile("0.5", "amf_tree_depth"), quantile("0.99", "amf_tree_depth"))),
            Panel("Weighted depth", "Mean depth at which the averaged prunings end: how much of the trees is used.",
                  "short", (mean("amf_weighted_depth", "weighted depth"),)),
            Panel("Labels", "Share of the events that came with one.", "percentunit",
                  (Query("sum(rate(amf_learned_samples_total{WORKERS}[$__rate_interval]))"
                         " / (sum(rate(amf_events_total{WORKERS}[$__rate_interval])) > 0)", "labelled"),)),
        ),
    ),
    Row(
        "Top models by traffic",
        (
            Panel("Labels learned", "", "short", (by_model("amf_model_samples"),)),
            Panel("Depth", "Mean depth of a learned record's leaf.", "short", (by_model("amf_model_depth"),)),
            Panel("Memory", "", "bytes", (by_model("amf_model_memory_bytes"),)),
        ),
    ),
)  # fmt: skip

STATE = (
    Row(
        "Partitions",
        (
            Panel("States", "Partitions by state.", "short",
                  (Query("sum by (state) (amf_partition_state{WORKERS})", "{{state}}"),)),
            Panel("Changes of hands", "Partitions that the group gave, asked back, or gave to another worker.", "short",
                  (Query("sum by (change) (increase(amf_rebalanced_partitions_total{WORKERS}[5m]))", "{{change}}"),)),
            Panel("Stops", "Partitions stopped to keep a guarantee, by code.", "short",
                  (Query("sum by (code) (increase(amf_partition_stops_total{WORKERS}[5m]))", "{{code}}"),)),
            Panel("Records behind", "By partition.", "short", (by_partition("amf_consumer_lag_records"),)),
            Panel("Replay", "Records taken in again after a restore.", "cps",
                  (rate("amf_replayed_records_total", "replayed"),)),
            Panel("Transactions", "By outcome.", "cps",
                  (Query("sum by (outcome) (rate(amf_transactions_total{WORKERS}[$__rate_interval]))",
                         "{{outcome}}"),)),
        ),
    ),
    Row(
        "Forwarder (input.repartition)",
        (
            Panel("Forwarded", "Records of the input that went to the topic keyed by model, and those rejected.", "cps",
                  (rate("amf_forwarded_records_total", "forwarded"),
                   rate("amf_forwarder_dead_letters_total", "rejected"))),
            Panel("Records not forwarded", "By partition of the input.", "short",
                  (by_input_partition("amf_forwarder_lag_records"),)),
            Panel("Partitions that nobody forwards", "Of the input: what no forwarder reads.", "short",
                  (Query("max(amf_forwarder_topic_partitions{WORKERS}) - (count(count by (input_partition)"
                         " (amf_forwarder_lag_records{WORKERS})) or vector(0))", "partitions"),)),
        ),
    ),
    Row(
        "Checkpoints",
        (
            Panel("Age", "Of the newest checkpoint of each partition.", "s",
                  (Query("max by (partition) (time() - amf_checkpoint_last_timestamp_seconds{WORKERS})",
                         "{{partition}}"),)),
            Panel("Replay that a restart would take", "At most, by partition.", "s",
                  (by_partition("amf_checkpoint_replay_cost_seconds"),)),
            Panel("Written, failed, passed over", "Checkpoints in five minutes.", "short",
                  (Query("sum(increase(amf_checkpoints_total{WORKERS}[5m]))", "written"),
                   Query("sum(increase(amf_checkpoint_failures_total{WORKERS}[5m]))", "failed"),
                   Query("sum(increase(amf_checkpoints_skipped_total{WORKERS}[5m]))", "corrupt"))),
            Panel("Size", "Of the newest checkpoint of each partition.", "bytes",
                  (by_partition("amf_checkpoint_last_size_bytes"),)),
            Panel("Time to write", "Mean over five minutes.", "s",
                  (Query("sum(increase(amf_checkpoint_duration_seconds_sum{WORKERS}[5m]))"
                         " / (sum(increase(amf_checkpoint_duration_seconds_count{WORKERS}[5m])) > 0)", "mean"),)),
            Panel("Retention margin", "From the oldest record of the topic to the newest checkpoint. On a topic without"
                  " events it falls to 0; below that a restart stops.", "short",
                  (by_partition("amf_retention_margin_records"),)),
        ),
    ),
    Row(
        "Memory",
        (
            Panel("Models", "In memory, and away for models.cache_bytes.", "short",
                  (Query("sum(amf_models{WORKERS})", "in memory"), Query("sum(amf_models_away{WORKERS})", "away"))),
            Panel("Loads and evictions", "Models that come back into memory, and that leave it.", "cps",
                  (Query("sum by (source) (rate(amf_loads_total{WORKERS}[$__rate_interval]))", "from {{source}}"),
                   rate("amf_evictions_total", "evicted"))),
            Panel("Memory and files", "Models in memory, and the files of those that left.", "bytes",
                  (Query("sum(amf_model_bytes{WORKERS})", "memory"), Query("sum(amf_spill_bytes{WORKERS})", "files"))),
        ),
    ),
)  # fmt: skip

DASHBOARDS = {
    "amf-overview": ("AMF worker: overview", "Is it healthy, does it keep up, does it learn?", OVERVIEW),
    "amf-learning": ("AMF worker: learning", "What the models are worth, all together and the top ones.", LEARNING),
    "amf-state": ("AMF worker: state and recovery", "Partitions, the forwarder, checkpoints and memory.", STATE),
}
"""uid and name of the file -> title, description, rows."""


def generated() -> dict[str, str]:
    """Name of the file -> its text."""
    return {
        f"{uid}.json": JSONEncoder(sort_keys=True, indent=2).encode(_dashboard(uid, *of)) + "\n"
        for uid, of in DASHBOARDS.items()
    }


def _dashboard(uid: str, title: str, description: str, rows: tuple[Row, ...]) -> object:
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["amf-worker"])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-3h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("job")
            .label("Job")
            .datasource(SOURCE)
            .query("label_values(amf_build_info, job)")
            .refresh(VariableRefresh.ON_DASHBOARD_LOAD)
        )
        .with_variable(
            # Where there is no such label, as outside of Kubernetes, "all" is the only choice, and right.
            dashboard.QueryVariable("namespace")
            .label("Namespace")
            .datasource(SOURCE)
            .query('label_values(amf_build_info{job="$job"}, namespace)')
            .refresh(VariableRefresh.ON_DASHBOARD_LOAD)
            .include_all(True)
            .all_value(".*")
        )
        .link(dashboard.DashboardLink("AMF worker").type("dashboards").tags(["amf-worker"]).keep_time(True))
    )
    for row in rows:
        built.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            built.with_panel(_panel(panel))
    return built.build()


def _panel(panel: Panel) -> stat.Panel | timeseries.Panel:
    built = stat.Panel() if panel.red_from is not None else _curves()
    built.title(panel.title).description(panel.description).unit(panel.unit).datasource(SOURCE)
    built.span(panel.width).height(HEIGHT if panel.red_from is None else STAT_HEIGHT)
    if panel.red_from is not None:
        steps = [Threshold(color="green", value=None), Threshold(color="red", value=panel.red_from)]
        built.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    for ref, query in zip("ABC", panel.queries, strict=False):
        target = prometheus.Dataquery().ref_id(ref).datasource(SOURCE).legend_format(query.legend)
        built.with_target(target.expr(query.expr.replace("WORKERS", 'job="$job", namespace=~"$namespace"')))
    return built


def _curves() -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(True).placement(LegendPlacement.BOTTOM)
    return (
        timeseries.Panel()
        .legend(legend.display_mode(LegendDisplayMode.LIST))
        .tooltip(common.VizTooltipOptions().mode(Tooltip.MULTI).sort(SortOrder.DESCENDING))
        .gradient_mode(GraphGradientMode.OPACITY)
        .fill_opacity(8)
        .axis_soft_min(0)
    )


if __name__ == "__main__":
    for name, text in generated().items():
        (FOLDER / name).write_text(text)
