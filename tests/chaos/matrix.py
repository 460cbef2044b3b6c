"""The fault matrix: every fault that the worker must survive, and what proves that it does, or why nothing does.

Names are those of `tests.chaos.faults`, paths are tests elsewhere. `python -m tests.chaos --faults NAME` runs one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    fault: str
    promise: str
    proofs: tuple[str, ...] = ()
    open: str = ""
    """What is not shown, and why."""


TRANSACTIONS, REBALANCES = "tests/worker/test_loop_transactions.py", "tests/worker/test_loop_rebalances.py"
STARTS, SAVES = "tests/worker/test_loop_starts.py", "tests/worker/test_loop_checkpoints.py"
DAMAGE, DIVERGENCE = "tests/worker/test_checkpoint_damage.py", "tests/worker/test_checkpoint_divergence.py"
TOPIC = "tests/kafka/test_topic_changes.py"

MATRIX = (
    Row(
        "kill -9 after consume, after learn, mid produce",
        "No output twice or missing; state comes back to the bit by replay.",
        ("sigkill", "kill-all", "kill@consumed", "kill@learned", "kill@producing", "kill@settled"),
    ),
    Row(
        "kill -9 after the offsets were sent, before the commit",
        "The next owner begins at the committed offset, once the transaction is settled or has timed out.",
        ("kill@offsets-sent",),
    ),
    Row(
        "kill -9 during the commit, or its answer lost",
        "A new producer settles it; the committed offsets say what became of it.",
        ("kill-during-commit", "kill@committed", "commit-answer-lost", "commit-lost", "kill@reopened"),
    ),
    Row(
        "An EndTxn arrives late",
        "Its producer is fenced before the next transaction begins.",
        ("late-commit", f"{TRANSACTIONS}::test_a_late_commit_of_the_old_producer_does_no_harm"),
    ),
    Row(
        "kill -9 in upload, before the manifest, in garbage collection, in load, in replay",
        "The checkpoint before is used; orphans are collected; a second crash is as good as the first.",
        ("kill@segment-written", "kill@manifest-written", "kill@collecting", "kill@restoring", "kill@replayed"),
    ),
    Row(
        "kill -9 or an exception in a callback of the rebalance",
        "Nothing but one more rebalance.",
        ("kill@assigned", "kill@revoked", "kill@lost", "raise@assigned", "raise@revoked", "raise@lost"),
    ),
    Row("Broker restart, in order or by kill -9", "The workers go on by themselves.", ("broker-bounce", "broker-kill")),
    Row("Coordinator or leader moves", "The same.", ("leader-moves",)),
    Row(
        "Network: partition, one way, half open, slow, lost frames",
        "Fenced or resumed; no output twice.",
        ("cut", "partition", "one-way", "half-open", "slow-link", "lost-frame"),
    ),
    Row(
        "Store: outage, slow, errors, lost answers",
        "Predictions go on; the next checkpoint makes up for the failed one.",
        ("store-outage", "store-dead", "store-slow", "store-errors", "store-answers-lost"),
    ),
    Row(
        "Zombie: frozen past its session, then going on",
        "Its transaction is refused; its checkpoints are true.",
        (
            "zombie",
            "hiccup",
            "stop@consumed",
            "stop@learned",
            "stop@producing",
            "stop@offsets-sent",
            "stop@committed",
            "stop@segment-written",
            "stop@assigned",
        ),
    ),
    Row("Rebalance in the middle of a transaction; storms", "Exact, in both protocols.", ("storm",)),
    Row(
        "max.poll.interval.ms exceeded",
        "Put out of the group; what it learned is dropped and replayed by the next owner.",
        ("oversleep", f"{REBALANCES}::test_a_member_that_was_given_up_and_is_back_commits_nothing_of_what_it_had_read"),
    ),
    Row("Two processes with one group.instance.id", "One of them ends and says why; no output twice.", ("twin",)),
    Row(
        "Records that cannot be used",
        "One dead letter each, in the same transaction; skipped alike by a replay.",
        ("tests/kafka/test_end_to_end.py::test_malformed_records_end_as_dead_letters_and_leave_no_trace",),
        "Every run here has them too: one event in forty is malformed, a tombstone or without a key.",
    ),
    Row(
        "Schema registry down",
        "The partition waits, no dead letter.",
        ("tests/kafka/test_registry.py::test_the_partition_waits_for_a_schema_and_then_all_is_there_exactly_once",),
    ),
    Row(
        "Retention passes the checkpoint",
        "The partition stops and says the numbers; or goes on under another lineage, by choice.",
        (
            f"{TOPIC}::test_a_retention_gap_stops_the_partition",
            f"{TOPIC}::test_a_retention_gap_that_is_accepted_goes_on_under_another_lineage",
            f"{TOPIC}::test_records_that_vanish_in_a_replay",
            f"{STARTS}::test_a_retention_gap_stops_the_partition_with_its_numbers",
            f"{STARTS}::test_records_that_vanish_while_they_are_replayed_stop_the_partition",
        ),
    ),
    Row(
        "Group offsets expired or reset",
        "Committed, else checkpoint, else start; back: stop, or predicted again; ahead: only learned.",
        (
            "offsets-expired",
            "tests/chaos/test_offsets.py::test_set_back_predicts_again_and_set_ahead_skips_predictions_but_learns",
            f"{TOPIC}::test_a_group_before_its_checkpoint_stops_unless_that_is_accepted",
            f"{STARTS}::test_where_the_group_lost_its_offsets_the_newest_checkpoint_counts",
            f"{STARTS}::test_a_partition_whose_group_is_ahead_of_all_checkpoints_stops",
        ),
    ),
    Row(
        "Topic made anew, repartitioned or compacted",
        "Stop under a name; partitions that are added may begin with new models, by choice.",
        (
            f"{TOPIC}::test_a_topic_made_anew_is_refused_with_both_ids",
            f"{TOPIC}::test_partitions_that_are_added_end_the_worker_and_no_other_starts",
            f"{TOPIC}::test_partitions_that_are_added_may_begin_with_new_models",
            f"{TOPIC}::test_a_compacted_input_is_refused",
            f"{TOPIC}::test_an_input_that_becomes_compacted_ends_its_worker_in_order",
            f"{TOPIC}::test_outputs_that_their_topic_deletes_are_named",
        ),
    ),
    Row(
        "Checkpoint damaged, cut short or foreign",
        "The one before, and more replay; none left: stop.",
        (
            "store-damage",
            f"{DAMAGE}::test_any_damage_to_the_newest_checkpoint_falls_back",
            f"{DAMAGE}::test_a_copied_folder_is_foreign",
        ),
    ),
    Row(
        "Incompatible change of the configuration",
        "Models whose own specification changed stop or start anew.",
        (f"{SAVES}::test_a_crash_after_models_started_anew_does_not_bring_the_old_ones_back",),
    ),
    Row(
        "New version of the learner",
        "Old checkpoints load; the engine header tells; no version replays what another one predicted.",
        (
            "upgrade",
            "tests/chaos/test_upgrade.py::test_in_a_rolling_upgrade_no_version_replays_what_another_one_predicted",
            "tests/amf/test_serialize.py",
        ),
        "The next version learns the same here; after a kill -9 it would replay what the one before has predicted.",
    ),
    Row(
        "Clock jumps",
        "No effect on what is predicted or learned; old checkpoints may be collected a day early.",
        ("clock-jumps", "tests/worker/test_simulation.py"),
        "Jumps of the wall clock, day by day, as Python reads it; librdkafka uses the monotonic one.",
    ),
    Row(
        "Disk full",
        "The checkpoint fails, the worker goes on.",
        ("disk-full", "tests/worker/test_store.py::test_a_failed_write_leaves_nothing_and_may_be_repeated"),
    ),
    Row(
        "Memory cap",
        "At the cap models stop growing.",
        ("tests/chaos/test_memory.py::test_full_models_stay_as_large_as_they_are",),
        "Some minutes at most here; the endless stream of the benchmarks is the long one.",
    ),
    Row("SIGTERM under load", "Exit 0 within 25 s, next to nothing to replay.", ("sigterm",)),
    Row(
        "Nondeterminism",
        "Two states at one offset are an alarm.",
        (f"{DIVERGENCE}::test_different_bytes_for_one_model_at_one_offset_are_found",),
        "Every run here compares all checkpoints with the reference as well.",
    ),
)
