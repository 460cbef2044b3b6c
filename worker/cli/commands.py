"""What each command does with its arguments. Each imports what it needs when it runs.

A command returns its exit code, or raises ConfigError or WorkerError with what the user should read.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from contextlib import nullcontext
from typing import TYPE_CHECKING

from worker.errors import ConfigError, WorkerError

if TYPE_CHECKING:
    from worker.cli.dataset import Rows
    from worker.config import Config

DONE, FAILED = 0, 1


def run(arguments: Namespace) -> int:
    from worker import service

    service.run(_load(arguments.config), arguments.config, until=arguments.until)
    return DONE


def held_up_by() -> str | None:
    """Who does not answer, if what `run` has left would keep the process from ending in order."""
    from worker import service

    return service.held_up_by()


def check(arguments: Namespace) -> int:
    from worker.config import effective

    config = _load(arguments.config)
    print(effective(config), end="", flush=True)
    if not (arguments.create_topics or arguments.connect):
        return DONE
    from worker.cli import check

    print()
    if arguments.create_topics:
        for sentence in check.create_topics(config, arguments.partitions):
            print(f"ok      {sentence}", flush=True)
    works = True
    if arguments.connect:
        for finding in check.connect(config):
            print(f"{finding.level:6}  {finding.sentence}", flush=True)
            works &= finding.level != "failed"
    return DONE if works else FAILED


def produce(arguments: Namespace) -> int:
    from worker.cli.produce import produce
    from worker.cli.terminal import progress

    config = _load(arguments.config)
    rows = _open(arguments, config)
    started = time.monotonic()
    with progress("publishing") as advance:
        n = produce(rows, config, arguments.config, rate=arguments.rate, advance=advance)
    seconds = time.monotonic() - started
    print(f"published {n:,} events to topic {config.input.topic} in {seconds:.1f} s")
    return DONE


def evaluate(arguments: Namespace) -> int:
    from worker.cli.evaluate import evaluate, show
    from worker.cli.predictions import PredictionsFile
    from worker.cli.terminal import progress
    from worker.store import open_store

    config = _load(arguments.config) if arguments.config else None
    rows = _open(arguments, config)
    if not rows.labelled:
        raise ConfigError(f"{rows.path}: --label must name the column of the labels: {', '.join(rows.columns)}")
    save_to = open_store(arguments.save) if arguments.save else None
    with PredictionsFile(arguments.out) if arguments.out else nullcontext() as out, progress("evaluating") as advance:
        report = evaluate(rows, config, out, save_to, advance=advance)
    show(report)
    if arguments.out:
        print(f"predictions in {arguments.out}")
    if arguments.save:
        print("models saved; a worker with checkpoint.warm_start begins with them")
    return DONE


def inspect(arguments: Namespace) -> int:
    from worker.cli import listing
    from worker.store import open_store

    store, now_ms = open_store(arguments.url), time.time_ns() // 1_000_000
    nothing = "there are no checkpoints under this URL"
    if arguments.idle is not None:
        from worker.cli.idle import show_idle

        found, problems = show_idle(store, arguments.idle)
    elif arguments.model is None:
        found, problems = listing.show_all(store, now_ms)
    else:
        found, problems = listing.show_model(store, arguments.model, now_ms)
        nothing = f"no checkpoint under this URL has a model {arguments.model!r}"
    if problems or not found:
        raise WorkerError("\n".join([*problems, *([] if found else [nothing])]))
    return DONE


def reset(arguments: Namespace) -> int:
    from worker.cli.idle import keys_in, reset

    config, keys = _load(arguments.config), list(arguments.keys)
    if arguments.keys_from is not None:
        with arguments.keys_from as lines:
            keys += keys_in(lines, arguments.keys_from.name)
    elif not keys:
        raise ConfigError("name the keys of models, or a file of them with --keys-from")
    n = reset(keys, config, arguments.config)
    print(f"published {n:,} tombstones to topic {config.input.topic}")
    return DONE


def reshard(arguments: Namespace) -> int:
    from worker.cli.reshard import reshard, show
    from worker.store import open_store

    if (arguments.topic is None) != (arguments.topic_id is None):
        raise ConfigError("--topic and --topic-id go together")
    topic = None if arguments.topic is None else (arguments.topic, arguments.topic_id)
    source, target = open_store(arguments.url), open_store(arguments.to or arguments.url)
    show(reshard(source, target, arguments.partitions, lineage=arguments.lineage, topic=topic))
    return DONE


def demo(arguments: Namespace) -> int:
    from worker.demo import demo

    return demo(arguments.seconds, arguments.models, arguments.rate, arguments.input)


def _load(path: str) -> Config:
    from worker.config import load

    return load(path, os.environ)


def _open(arguments: Namespace, config: Config | None) -> Rows:
    from worker.cli.dataset import open_rows

    def has_numbers(key: str) -> bool:
        return config is not None and config.models.params_for(key).labels_are_numbers

    return open_rows(arguments.file, arguments.label, arguments.key, arguments.keys, has_numbers)
