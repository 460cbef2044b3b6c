"""The arguments of the command line: what there is to type, and what it may be.

Nothing here imports a library, so that --help is there at once; `worker.cli.commands` imports what a command needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from worker import __version__
from worker.cli import commands, words

_EXIT_CODES = "exit codes: 0 done, 1 failed, 2 unusable configuration or command line, 130 interrupted by Ctrl-C"


_Add = Callable[..., argparse.ArgumentParser]


class _Command(argparse.ArgumentParser):
    """Takes a list of words wherever they stand: argparse alone takes those before the next option, be it none."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        found, left = super().parse_known_args(args, namespace)
        listed = [each.dest for each in self._get_positional_actions() if each.nargs == "*"]
        if not listed:
            return found, left
        [name] = listed
        ends = left.index("--") if "--" in left else len(left)
        more = [*(word for word in left[:ends] if not word.startswith("-")), *left[ends + 1 :]]
        setattr(found, name, [*getattr(found, name), *more])
        return found, [word for word in left[:ends] if word.startswith("-")]


def parser() -> argparse.ArgumentParser:
    """All commands with their options; `command` of what it parses is the function to run."""
    made = argparse.ArgumentParser(
        "amf-worker",
        description="One online forest per model key: events in through Kafka, predictions out, exactly once.",
        epilog=f"`amf-worker COMMAND --help` shows the options of a command, with an example.\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"amf-worker {__version__}")
    add = partial(_command, made.add_subparsers(metavar="COMMAND", required=True, parser_class=_Command))
    _add_init(add)
    _add_run(add)
    _add_check(add)
    _add_commands_on_rows(add)
    _add_commands_on_models(add)
    _add_reshard(add)
    _add_demo(add)
    _add_completion(add)
    return made


def _add_init(add: _Add) -> None:
    init = add(
        "init",
        commands.init,
        "write a configuration with every key explained, after three questions",
        "init --bootstrap-servers localhost:9092 --topic events --checkpoint-url file:///var/lib/amf",
    )
    init.add_argument(
        "path", metavar="FILE", type=Path, nargs="?", default=Path("worker.yaml"), help="what to write (worker.yaml)"
    )
    init.add_argument("--bootstrap-servers", metavar="HOSTS", help="the brokers to ask first")
    init.add_argument("--topic", metavar="TOPIC", help="the topic of the events; the others are called after it")
    init.add_argument("--checkpoint-url", metavar="URL", help="the folder of the checkpoints")
    init.add_argument("--force", action="store_true", help="overwrite a file that is there")


def _add_completion(add: _Add) -> None:
    completion = add(
        "completion",
        commands.completion,
        "print what a shell needs to complete commands and options",
        "completion bash > ~/.local/share/bash-completion/completions/amf-worker",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="which shell")


def _add_run(add: _Add) -> None:
    run = add("run", commands.run, "work until SIGTERM or SIGINT; a second signal ends at once", "run worker.yaml")
    _add_config(run)
    run.add_argument(
        "--until",
        metavar="END",
        type=words.ends,
        help="stop in order at the end of the topic as it is now (end), or of some partitions (0:1000,1:2000: the "
        "offset after the last record); the other partitions are left as they are, such as those that were added since "
        "the newest checkpoint; with input.repartition the topic is the internal one, and nothing is forwarded",
    )
    run.add_argument(
        "--processes",
        metavar="N",
        type=words.processes,
        default=1,
        help="so many workers, each a process and a member of the group, or one for each core (auto); those that end "
        "unasked are started again. They have the configuration in common, but for numbers added to their "
        "kafka.group.instance.id, and ports from that of metrics.listen on",
    )
    run.add_argument(
        "--workers-at", metavar="PORTS", type=words.ports, default=(), help=argparse.SUPPRESS
    )  # of --processes


def _add_check(add: _Add) -> None:
    check = add(
        "check",
        commands.check,
        "validate a configuration, and try what it names",
        "check worker.yaml --connect",
    )
    _add_config(check)
    check.add_argument(
        "--verbose",
        action="store_true",
        help="also print the configuration as it is in effect, secrets and properties from the environment masked, "
        "and what Kafka's client says",
    )
    check.add_argument(
        "--connect", action="store_true", help="also try the broker, the topics and the checkpoint store"
    )
    check.add_argument("--create-topics", action="store_true", help="make the topics that are missing")
    check.add_argument(
        "--partitions",
        metavar="N",
        type=words.up_to(words.MOST_PARTITIONS),
        default=4,
        help="with --create-topics: partitions of a new input topic (default: 4); the other topics get as many as it",
    )


def _add_commands_on_rows(add: _Add) -> None:
    produce = add(
        "produce",
        commands.produce,
        "publish the rows of a file as events",
        "produce adult.npz --config worker.yaml --keys 8 --rate 1000",
    )
    _add_rows(produce, config_required=True)
    _add_settings(produce)
    produce.add_argument(
        "--rate", metavar="R", type=words.above_zero(float), help="events a second (default: at full speed)"
    )

    evaluate = add(
        "evaluate",
        commands.evaluate,
        "predict and learn the rows of a file without Kafka, exactly as a worker would",
        "evaluate churn.csv --label churned --key country --report churn.html",
    )
    _add_rows(evaluate, config_required=False)
    _add_learner(evaluate)
    evaluate.add_argument("--report", metavar="PAGE.html", type=Path, help="write the figures as a page with pictures")
    evaluate.add_argument(
        "--out", metavar="PREDICTIONS.csv", type=Path, help="write every prediction with its probabilities to this file"
    )
    evaluate.add_argument(
        "--save", metavar="URL", help="keep the models in this empty folder of a store, for checkpoint.warm_start"
    )


def _add_learner(parser: argparse.ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--regression",
        dest="algorithm",
        action="store_const",
        const="amf-regressor",
        help="labels are numbers to be estimated (without --config guessed from the first labels)",
    )
    kind.add_argument(
        "--classification",
        dest="algorithm",
        action="store_const",
        const="amf-classifier",
        help="labels are classes, whatever they look like",
    )
    _add_settings(
        parser,
        "a parameter of the models, such as n_estimators=20, or any key of a configuration, such as "
        "models.max_models=100",
    )


def _add_config(parser: argparse.ArgumentParser, what: str = "the configuration, a YAML file") -> None:
    parser.add_argument("config", metavar="CONFIG", help=what)
    _add_settings(parser)


def _add_settings(
    parser: argparse.ArgumentParser,
    what: str = "any key of a configuration, such as metrics.listen=127.0.0.1:9465, above the file",
) -> None:
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="settings",
        type=words.setting,
        action="append",
        default=[],
        help=f"{what}; may be repeated",
    )


def _add_commands_on_models(add: _Add) -> None:
    inspect = add(
        "inspect",
        commands.inspect,
        "list the checkpoints under a URL, and their models",
        "inspect s3://bucket/checkpoints --model customer-17",
    )
    inspect.add_argument("url", metavar="URL", help="checkpoint.url of the configuration, or a folder below it")
    which = inspect.add_mutually_exclusive_group()
    which.add_argument("--model", metavar="KEY", help="only the model of this key, with its parameters")
    which.add_argument(
        "--idle",
        metavar="SPAN",
        type=words.span,
        help="only the keys of models that learned nothing for so long (30d, 12h), before the newest record learned",
    )
    which.add_argument(
        "--export",
        metavar=("KEY", "FILE"),
        nargs=2,
        help="write the model of this key to a file, for amf.loads",
    )
    listed = inspect.add_argument_group("the list of models")
    listed.add_argument("--match", metavar="GLOB", default="*", help="only keys like this, such as customer-*")
    listed.add_argument(
        "--sort",
        choices=("samples", "nodes", "depth", "bytes", "idle", "key"),
        default="samples",
        help="the largest first, or the idlest, or by key (default: samples)",
    )
    listed.add_argument(
        "--limit", metavar="N", type=words.above_zero(int), default=20, help="at most so many of a topic (default: 20)"
    )

    reset = add(
        "reset",
        commands.reset,
        "publish tombstones, so that the models of these keys are removed and start anew",
        "reset worker.yaml customer-17 customer-18",
    )
    _add_config(reset)
    reset.add_argument("keys", metavar="KEY", nargs="*", help="the key of a model")
    reset.add_argument(
        "--keys-from",
        metavar="FILE",
        type=argparse.FileType(encoding="utf-8-sig"),
        help="and those in a file, one a line, as `inspect --idle` lists them; - is stdin",
    )


def _add_reshard(add: _Add) -> None:
    reshard = add(
        "reshard",
        commands.reshard,
        "write the checkpoints anew once partitions were added to the topic, so that no model starts anew; the broker "
        "is asked whether all was worked off",
        "reshard worker.yaml",
    )
    _add_config(reshard, "the configuration, as the workers had it")
    reshard.add_argument("--to", metavar="URL", help="another store to write to (default: the same)")
    reshard.add_argument("--into", metavar="NAME", help="the new lineage (default: LINEAGE~PARTITIONS)")
    reshard.add_argument(
        "--topic", metavar="NAME", help="another topic that the models are for from now on, which starts at offset 0"
    )
    reshard.add_argument(
        "--drop-astray", action="store_true", help="leave out the models that are not in the partition of their key"
    )


def _add_demo(add: _Add) -> None:
    demo = add(
        "demo", commands.demo, "watch a worker at work on an embedded broker, and come back after a kill", "demo"
    )
    demo.add_argument(
        "--seconds", metavar="S", type=words.above_zero(float), default=45.0, help="how long (default: 45)"
    )
    demo.add_argument(
        "--models", metavar="N", type=words.above_zero(int), default=6, help="how many model keys (default: 6)"
    )
    demo.add_argument(
        "--rate", metavar="R", type=words.above_zero(float), default=3000.0, help="events a second (default: 3000)"
    )
    demo.add_argument(
        "--input",
        metavar="FILE",
        help="rows to send, a file as `evaluate` takes but not stdin, with the labels, which are classes, in the last "
        "column, in an .npz in y (default: made up)",
    )


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
    messages.add_argument("--debug", action="store_true", help="show where in the program an error arose")
    messages.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="what to report on stderr (default: info)",
    )
    return parser


def _add_rows(parser: argparse.ArgumentParser, *, config_required: bool) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="text with a header (commas, semicolons, tabs or bars between cells) or JSON lines, gzip or not (- is "
        "stdin), a .parquet file, or an .npz file with X and y; all columns are features",
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
    parser.add_argument("--id", metavar="COL", help="and the column of the events' ids (default: the row's number)")
    parser.add_argument(
        "--time", metavar="COL", help="and the column of the events' times: ISO 8601, or seconds or more since 1970"
    )
    parser.add_argument(
        "--drop",
        metavar="COL",
        action="append",
        default=[],
        help="and this column, which is left out; may be repeated",
    )
    parser.add_argument(
        "--thousands",
        metavar="CHAR",
        choices=(",", ".", "'", " "),
        help="what stands between the thousands of numbers in a file of text: a comma, as in 1,201.50, a point, as in "
        "1.201,50 and 7,49, an apostrophe or a space (default: nothing, and such a number is a text)",
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", metavar="COL", help="and the column of the model keys")
    keys.add_argument(
        "--keys",
        metavar="N",
        type=words.above_zero(int),
        help="row i belongs to model-{i mod N} (default: 1)",
    )
