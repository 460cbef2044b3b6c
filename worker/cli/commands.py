"""What each command does with its arguments. Each imports what it needs when it runs.

A command returns its exit code, or raises ConfigError or WorkerError with what the user should read.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from worker.base import gc_tuning
from worker.base.errors import ConfigError, Fatal, WorkerError
from worker.base.terms import some
from worker.cli.words import by_name

if TYPE_CHECKING:
    from worker.checkpoint import Source
    from worker.cli.dataset import FileRows
    from worker.config import Config

DONE, FAILED, UNUSABLE, INTERRUPTED = 0, 1, 2, 130
ALGORITHM = "models.default.algorithm"
_ALGORITHM = {ALGORITHM, "algorithm"}
"""How `--set` may call it."""


def init(arguments: Namespace) -> int:
    from worker.cli.init import QUESTIONS, init

    answers = {question.option: getattr(arguments, question.option.replace("-", "_")) for question in QUESTIONS}
    given = {option: answer for option, answer in answers.items() if answer is not None}
    init(arguments.path, given, force=arguments.force)
    return DONE


def completion(arguments: Namespace) -> int:
    from worker.cli.arguments import parser
    from worker.cli.completion import script

    print(script(parser(), arguments.shell))
    return DONE


def run(arguments: Namespace) -> int:
    if arguments.processes != 1:
        return _run_several(arguments)
    from worker import __version__
    from worker.base.log import Log
    from worker.cli import logs
    from worker.cli.signals import Signals

    config = _load(arguments.config, arguments.settings)
    logs.use_format(config.logging.format, config.kafka.get("group.instance.id", config.kafka.get("client.id")))
    signals = Signals()  # Before it is said that it starts, and before libraries are imported, which takes a second.
    Log(__name__).info("starting", f"amf-worker {__version__} starts with {arguments.config}")
    with gc_tuning.paused():
        from worker import service
        from worker.adapters.kafka import placing

    with placing(config):
        service.run(config, arguments.config, signals.should_stop, until=arguments.until, workers=arguments.workers_at)
    return DONE


def _run_several(arguments: Namespace) -> int:
    from worker import processes
    from worker.base import cores
    from worker.cli import logs

    n = cores.usable() if arguments.processes == "auto" else arguments.processes
    config = _load(arguments.config, arguments.settings)
    logs.use_format(config.logging.format)
    # -P: no other `worker` that lies in the folder where this was started gets in the way.
    program = [sys.executable, "-P", "-m", "worker", "run", arguments.config, "--log-level", arguments.log_level]
    if arguments.debug:
        program.append("--debug")
    if (until := arguments.until) is not None:
        ends = until if until == "end" else ",".join(f"{number}:{end}" for number, end in until.items())
        program += ["--until", ends]
    if ports := processes.ports(config, n):
        program += ["--workers-at", ",".join(map(str, ports))]
    members = (by_name([*arguments.settings, *processes.of_member(config, k).items()]) for k in range(1, n + 1))
    commands = [processes.command_line(program, each) for each in members]
    return processes.run(commands, final=UNUSABLE, have_end=until is not None)


def is_held_up() -> bool:
    """Whether what `run` has left would keep the process from ending in order; the log says who does not answer."""
    service = sys.modules.get("worker.service")
    return service is not None and bool(service.is_held_up())


def check(arguments: Namespace) -> int:
    from worker.config import effective

    config = _load(arguments.config, arguments.settings)
    if arguments.verbose:
        print(effective(config), flush=True)
    from worker.adapters.kafka import require_properties
    from worker.adapters.kafka.registry import open_registry
    from worker.base.log import printable
    from worker.cli import check

    more = "" if arguments.verbose else "; --verbose prints it as it is in effect"
    works = True
    with nullcontext() if arguments.verbose else check.silent_clients():
        require_properties(config)
        open_registry(config)  # whose libraries may be missing
        print(f"ok      {arguments.config}: can be used{more}", flush=True)
        if arguments.create_topics:
            for sentence in check.create_topics(config, arguments.partitions):
                print(f"ok      {sentence}", flush=True)
        if arguments.connect:
            for finding in check.connect(config):
                # Foreign texts are in it, of which none becomes a finding.
                for number, line in enumerate(finding.sentence.splitlines()):
                    print(f"{finding.level if number == 0 else '':6}  {printable(line)}", flush=True)
                works &= finding.level != "failed"
    return DONE if works else FAILED


def produce(arguments: Namespace) -> int:
    from worker.adapters.kafka import placing
    from worker.cli.produce import produce
    from worker.cli.terminal import progress, remark

    config = _load(arguments.config, arguments.settings)
    rows = _open(arguments, config)
    rows.has_numbers = _labels_are_numbers(config)
    if not rows.from_stdin:
        _remark_on_columns(rows)  # of a pipe the first rows are not waited for
    started = time.monotonic()
    with placing(config), progress("publishing") as advance:
        n = produce(rows, config, arguments.config, rate=arguments.rate, advance=advance)
    seconds = time.monotonic() - started
    for note in rows.notes:
        remark(note)
    print(f"published {some(n, 'event')} to topic {config.input.topic} in {seconds:.1f} s")
    return DONE


def evaluate(arguments: Namespace) -> int:
    from worker.cli.dataset.glance import FIRST_ROWS
    from worker.cli.dataset.rows import choice
    from worker.cli.evaluate import evaluate
    from worker.cli.files import require_distinct, require_place, write
    from worker.cli.predictions import PredictionsFile
    from worker.cli.report import page, text
    from worker.cli.terminal import Interrupt, progress, status
    from worker.state.targets import compile_kernels

    given = None if arguments.config is None else _load(arguments.config, _settings(arguments).items())
    rows = _open(arguments, given or _without_models(arguments))
    read = None if rows.from_stdin else rows.path
    require_distinct({"the rows": read, "--report": arguments.report, "--out": arguments.out})
    if not rows.labelled:
        raise ConfigError(f"{rows.name}: --label must name the column of the labels; {choice(rows.columns)}")
    interrupt = Interrupt()
    with interrupt.noted(), interrupt.at_once():
        rows.peek(FIRST_ROWS)
    remarks = _remark_on_columns(rows)
    config = _learner(arguments, rows, given)
    _require_one_mind(arguments, config)
    rows.has_numbers = _labels_are_numbers(config)
    save = None if arguments.save is None else _saving(arguments.save)
    if arguments.report:
        require_place(arguments.report)
    # Now, so that it does not count as learning: half a minute after an installation, later a moment.
    with status("loading the learner, which is compiled once after an installation"):
        compile_kernels(config.models.algorithms, explain=config.output.explain > 0)
    with PredictionsFile(arguments.out) if arguments.out else nullcontext() as out:
        with interrupt.noted(), progress("evaluating") as advance:
            evaluated = evaluate(rows, config, out, advance=advance, interrupt=interrupt)
        report = evaluated.report
        writes: dict[str, Callable[[], object]] = {}
        if arguments.report:
            writes[f"report in {arguments.report}"] = lambda: write(
                arguments.report, page.page_of(report, rows.name, rows.roles.label or "", config, remarks)
            )
        if out is not None:
            writes[f"predictions in {arguments.out}"] = partial(out.finish, evaluated.classes)
        if save is not None:
            saved = "models saved; a worker with checkpoint.warm_start begins with them"
            writes[saved] = partial(save, rows.path.name, report.rows, evaluated.models, config)
        try:
            # First of all: what cannot be written below takes nothing of it along.
            text.show(report)
            sys.stdout.flush()
        finally:
            _do_all(writes)
    if report.interrupted:
        return INTERRUPTED
    return DONE if report.is_scored else FAILED


def _saving(url: str) -> Callable[[str, int, Mapping[str, Source], Config], object]:
    """Saves models under the URL, at which it has been tried whether that works."""
    from worker.adapters.store import open_store
    from worker.cli import saving

    _require_lasting("--save", url)
    store = open_store(url)
    saving.require_place(store, url)
    return partial(saving.save, store)


def _require_lasting(option: str, url: str) -> None:
    if url.lower().startswith("memory:"):
        raise ConfigError(f"{option}: what is in {url} is gone when this command ends; expected such as file:///folder")


def _do_all(writes: Mapping[str, Callable[[], object]]) -> None:
    """Do each, whatever becomes of the others, and then say what is done. Raises Fatal with all that failed."""
    done, problems = list[str](), list[str]()
    for sentence, write in writes.items():
        try:
            write()
            done.append(sentence)
        except WorkerError as error:
            problems.append(str(error))
    for sentence in done:
        print(sentence)
    if problems:
        raise Fatal("\n".join(problems))


def _without_models(arguments: Namespace) -> Config:
    """What the command line says, but of the models: which may learn the labels is told by how these look."""
    from worker.cli.evaluate import config_of_rows
    from worker.config import Config
    from worker.config.keys import keys

    sections = keys(Config).keys() - {"models"}
    return config_of_rows(by_name(each for each in arguments.settings if each[0].partition(".")[0] in sections))


def _learner(arguments: Namespace, rows: FileRows, given: Config | None) -> Config:
    """The configuration by which rows are evaluated, that of a file if one is given; what was guessed of it is said on
    stderr."""
    from worker.cli.dataset.glance import labels_are_numbers
    from worker.cli.evaluate import config_of_rows
    from worker.cli.terminal import remark

    settings = _settings(arguments)
    reason = None if settings.keys() & _ALGORITHM else labels_are_numbers(rows)
    if given is not None:
        if reason is not None and not given.models.default.labels_are_numbers:
            remark(f"{reason}, and the configuration takes them for classes: --regression estimates them")
        return given
    if reason is not None:
        remark(f"{reason}: they are estimated. --classification takes each of them for a class")
        settings[ALGORITHM] = "amf-regressor"
    return config_of_rows(settings)


def _settings(arguments: Namespace) -> dict[str, str]:
    """Those of the command line, and the algorithm that --regression or --classification stands for."""
    settings = by_name(arguments.settings)
    if arguments.algorithm and not settings.keys() & _ALGORITHM:
        settings[ALGORITHM] = arguments.algorithm
    return settings


def _require_one_mind(arguments: Namespace, config: Config) -> None:
    """What is said of the labels must agree with the algorithm that `--set` names. Raises ConfigError."""
    said, algorithm = arguments.algorithm, config.models.default.algorithm
    numbers = config.models.default.labels_are_numbers
    if said is not None and numbers != (said == "amf-regressor"):
        flag, kind = ("--classification", "numbers") if numbers else ("--regression", "classes")
        raise ConfigError(f"{flag}: the labels of the algorithm {algorithm} are {kind}; leave one of them out")


def inspect(arguments: Namespace) -> int:
    from worker.adapters.store import open_store
    from worker.cli import listing

    store, now_ms = open_store(arguments.url), time.time_ns() // 1_000_000
    nothing = "there are no checkpoints under this URL, which is that of checkpoint.url or of a folder in it"
    if arguments.idle is not None:
        from worker.cli.idle import show_idle

        found, problems = show_idle(store, arguments.idle, now_ms)
    elif arguments.export is not None:
        key, file = arguments.export
        found, problems = listing.export(store, key, Path(file))
        nothing = f"no checkpoint under this URL has a model {key!r}"
    elif arguments.model is None:
        chosen = listing.Choice(arguments.match, arguments.sort, arguments.limit)
        found, problems = listing.show_all(store, now_ms, chosen)
    else:
        found, problems = listing.show_model(store, arguments.model, now_ms)
        nothing = f"no checkpoint under this URL has a model {arguments.model!r}"
    if problems or not found:
        raise Fatal("\n".join([*problems, *([] if found else [nothing])]))
    return DONE


def reset(arguments: Namespace) -> int:
    from worker.adapters.kafka import placing
    from worker.cli.dataset.rows import readable
    from worker.cli.idle import keys_in, reset
    from worker.cli.terminal import progress

    config, keys = _load(arguments.config, arguments.settings), list(arguments.keys)
    if arguments.keys_from is not None:
        with readable(arguments.keys_from.name), arguments.keys_from as lines:
            keys += keys_in(lines, arguments.keys_from.name)
    elif not keys:
        raise ConfigError("name the keys of models, or a file of them with --keys-from")
    with placing(config), progress("publishing") as advance:
        n = reset(keys, config, arguments.config, advance=advance)
    print(f"published {some(n, 'tombstone')} to topic {config.input.topic}")
    return DONE


def reshard(arguments: Namespace) -> int:
    from worker.adapters.kafka import placing
    from worker.adapters.store import open_store
    from worker.cli.check import silent_clients
    from worker.cli.drained import ask_and_reshard
    from worker.cli.reshard import show

    config = _load(arguments.config, arguments.settings)
    if arguments.to is not None:
        _require_lasting("--to", arguments.to)
    target = open_store(config.checkpoint.url if arguments.to is None else arguments.to)
    with silent_clients(), placing(config):
        written = ask_and_reshard(config, target, arguments.topic, arguments.into, drop_astray=arguments.drop_astray)
    show(written)
    return DONE


def demo(arguments: Namespace) -> int:
    from worker.demo import demo

    return demo(arguments.seconds, arguments.models, arguments.rate, arguments.input)


def _load(path: str, settings: Iterable[tuple[str, str]]) -> Config:
    from worker.config import load

    # Shells know HOSTNAME and do not pass it on.
    return load(path, {"HOSTNAME": gethostname(), **os.environ}, by_name(settings))


def _open(arguments: Namespace, config: Config) -> FileRows:
    from worker.cli.dataset import open_rows
    from worker.config import repartition

    return open_rows(
        arguments.file,
        arguments.label,
        arguments.key,
        arguments.keys or 1,
        id=arguments.id,
        time=arguments.time,
        drop=arguments.drop,
        thousands=arguments.thousands,
        key_field=None if arguments.keys else repartition.key_field(config),
    )


def _remark_on_columns(rows: FileRows) -> list[str]:
    """Say on stderr what the first rows tell of the columns; returns the sentences."""
    from worker.cli.dataset.glance import odd_columns
    from worker.cli.terminal import remark

    sentences = list(odd_columns(rows))
    for sentence in sentences:
        remark(sentence)
    return sentences


def _labels_are_numbers(config: Config) -> Callable[[str], bool]:
    return lambda key: config.models.params_for(key or config.models.null_key or "").labels_are_numbers
