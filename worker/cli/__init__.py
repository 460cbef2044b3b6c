"""The command line: what there is to type, and how errors, exit codes and the log look.

Nothing here imports a library, so that --help is there at once; `worker.cli.commands` imports what a command needs.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from worker import __version__
from worker.cli import commands
from worker.cli.commands import FAILED
from worker.errors import ConfigError, WorkerError

UNUSABLE, INTERRUPTED = 2, 130

T = TypeVar("T", int, float)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Wrong usage and --help raise SystemExit, as argparse does."""
    arguments = _parser().parse_args(argv)
    _log_to_stderr(arguments.log_level)
    code = _run(arguments)
    if arguments.command is commands.run and (silent := commands.held_up_by()):
        # Python would wait for these threads; what they leave behind is no more than a kill would.
        print(f"amf-worker: {silent} does not answer, going without it", file=sys.stderr, flush=True)
        os._exit(code)
    return code


def _run(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        return _fail(error, UNUSABLE, arguments.verbose)
    except WorkerError as error:
        return _fail(error, FAILED, arguments.verbose)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, arguments.verbose)
    except BrokenPipeError:
        # Who read our output has seen enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        hint = "" if arguments.verbose else " (-v shows where)"
        return _fail(f"unexpected {type(error).__name__}: {error}{hint}", FAILED, arguments.verbose)


def _fail(error: object, code: int, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    for line in str(error).splitlines():
        print(f"amf-worker: {line}", file=sys.stderr)
    return code


# --- arguments --------------------------------------------------------------------------------------------------------

_EXIT_CODES = "exit codes: 0 done, 1 failed, 2 unusable configuration or command line, 130 interrupted"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "amf-worker",
        description="One online forest per model key: events in through Kafka, predictions out, exactly once.",
        epilog=f"`amf-worker COMMAND --help` shows the options of a command, with an example.\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"amf-worker {__version__}")
    add = partial(_command, parser.add_subparsers(metavar="COMMAND", required=True))

    run = add("run", commands.run, "work until SIGTERM or SIGINT; a second signal ends at once", "run worker.yaml")
    run.add_argument("config", metavar="CONFIG", help="the configuration, a YAML file")
    run.add_argument(
        "--until",
        metavar="END",
        type=_ends,
        help="stop in order at the end of the topic as it is now (end), or of some partitions (0:1000,1:2000: the "
        "offset after the last record); the other partitions are left as they are",
    )

    check = add(
        "check",
        commands.check,
        "validate a configuration and print it as it is in effect",
        "check worker.yaml --connect",
    )
    check.add_argument("config", metavar="CONFIG", help="the configuration, a YAML file")
    check.add_argument(
        "--connect", action="store_true", help="also try the broker, the topics and the checkpoint store"
    )
    check.add_argument("--create-topics", action="store_true", help="make the topics that are missing")
    check.add_argument(
        "--partitions",
        metavar="N",
        type=_above_zero(int),
        default=4,
        help="with --create-topics: partitions of a new input topic (default: 4); the other topics get as many as it",
    )

    produce = add(
        "produce",
        commands.produce,
        "publish the rows of a file as events",
        "produce adult.npz --config worker.yaml --keys 8 --rate 1000",
    )
    _add_rows(produce, config_required=True)
    produce.add_argument(
        "--rate", metavar="R", type=_above_zero(float), help="events a second (default: at full speed)"
    )

    evaluate = add(
        "evaluate",
        commands.evaluate,
        "predict and learn the rows of a file without Kafka, exactly as a worker would",
        "evaluate churn.csv --label churned --key country --out predictions.csv",
    )
    _add_rows(evaluate, config_required=False)
    evaluate.add_argument(
        "--out", metavar="PREDICTIONS.csv", type=Path, help="write every prediction with its probabilities to this file"
    )
    evaluate.add_argument(
        "--save", metavar="URL", help="keep the models in this empty folder of a store, for checkpoint.warm_start"
    )

    inspect = add(
        "inspect",
        commands.inspect,
        "list the checkpoints under a URL",
        "inspect s3://bucket/checkpoints --model customer-17",
    )
    inspect.add_argument("url", metavar="URL", help="checkpoint.url of the configuration, or a folder below it")
    which = inspect.add_mutually_exclusive_group()
    which.add_argument("--model", metavar="KEY", help="only the model of this key, with its parameters")
    which.add_argument(
        "--idle",
        metavar="SPAN",
        type=_span,
        help="only the keys of models that learned nothing for so long (30d, 12h), before the newest record learned",
    )

    reset = add(
        "reset",
        commands.reset,
        "publish tombstones, so that the models of these keys are removed and start anew",
        "reset worker.yaml customer-17 customer-18",
    )
    reset.add_argument("config", metavar="CONFIG", help="the configuration, a YAML file")
    reset.add_argument("keys", metavar="KEY", nargs="*", help="the key of a model")
    reset.add_argument(
        "--keys-from",
        metavar="FILE",
        type=argparse.FileType(encoding="utf-8"),
        help="and those in a file, one a line, as `inspect --idle` lists them; - is stdin",
    )

    reshard = add(
        "reshard",
        commands.reshard,
        "write the checkpoints of a drained topic anew for another number of partitions",
        "reshard s3://bucket/checkpoints --partitions 24",
    )
    reshard.add_argument("url", metavar="URL", help="checkpoint.url of the configuration")
    reshard.add_argument(
        "--partitions", metavar="N", type=_above_zero(int), required=True, help="how many partitions there are now"
    )
    reshard.add_argument("--to", metavar="URL", help="another store to write to (default: the same)")
    reshard.add_argument("--lineage", metavar="NAME", help="which one to read, where there are several")
    reshard.add_argument(
        "--topic", metavar="NAME", help="a new topic that the models are for, which starts at offset 0"
    )
    reshard.add_argument("--topic-id", metavar="ID", help="its id, with - and _ for + and /")

    demo = add(
        "demo", commands.demo, "watch a worker at work on an embedded broker, and come back after a kill", "demo"
    )
    demo.add_argument("--seconds", metavar="S", type=_above_zero(float), default=45.0, help="how long (default: 45)")
    demo.add_argument(
        "--models", metavar="N", type=_above_zero(int), default=6, help="how many model keys (default: 6)"
    )
    demo.add_argument(
        "--rate", metavar="R", type=_above_zero(float), default=3000.0, help="events a second (default: 3000)"
    )
    demo.add_argument("--input", metavar="FILE", help="rows to send, a CSV or .npz file (default: made up)")
    return parser


def _command(
    subparsers: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, example: str
) -> argparse.ArgumentParser:
    """A command with the options that all commands have."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  amf-worker {example}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run)
    messages = parser.add_argument_group("messages")
    messages.add_argument("-v", "--verbose", action="store_true", help="show where in the program an error arose")
    messages.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="what to report on stderr (default: info)",
    )
    return parser


def _add_rows(parser: argparse.ArgumentParser, *, config_required: bool) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="a CSV file with a header, or an .npz file with X and y; all columns are features"
    )
    parser.add_argument(
        "--config",
        metavar="CONFIG",
        required=config_required,
        help="the configuration, a YAML file"
        if config_required
        else "take the parameters of the models from this file",
    )
    parser.add_argument("--label", metavar="COL", help="except for the column of the labels (default in an .npz: y)")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", metavar="COL", help="and the column of the model keys")
    keys.add_argument(
        "--keys", metavar="N", type=_above_zero(int), default=1, help="row i belongs to model-{i mod N} (default: 1)"
    )


def _ends(text: str) -> Literal["end"] | dict[int, int]:
    """A type of argument: `end`, or the end of each partition."""
    if text == "end":
        return "end"
    if re.fullmatch(r"\d+:\d+(,\d+:\d+)*", text, re.ASCII):
        pairs = [each.split(":") for each in text.split(",")]
        ends = {int(partition): int(offset) for partition, offset in pairs}
        if len(ends) == len(pairs):
            return ends
    raise argparse.ArgumentTypeError(
        f"expected `end`, or PARTITION:OFFSET,... with each partition once, found {text!r}"
    )


def _above_zero(kind: Callable[[str], T]) -> Callable[[str], T]:
    """A type of argument: what `kind` makes of the text, if that is a number above 0."""

    def parse(text: str) -> T:
        with suppress(ValueError):
            value = kind(text)
            if 0 < value < float("inf"):
                return value
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")

    return parse


def _span(text: str) -> float:
    """A type of argument: a time span in seconds."""
    parsed = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    if parsed is None:
        raise argparse.ArgumentTypeError(
            f"expected a number of days, hours, minutes or seconds as in 30d, found {text!r}"
        )
    return float(parsed[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[parsed[2]]


# --- log --------------------------------------------------------------------------------------------------------------


class _StderrHandler(logging.Handler):
    """Writes to whatever stderr is at the moment: a progress bar puts itself in its place while it is on screen."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def _log_to_stderr(level: str) -> None:
    """Our own log alone: libraries that log their inner life at debug level would drown it."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler = _StderrHandler()
    handler.setFormatter(formatter)
    log = logging.getLogger("worker")
    log.handlers = [handler]
    log.setLevel(level.upper())
