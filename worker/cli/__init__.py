"""The command line: how it runs a command, and how errors and exit codes look.

Nothing here imports a library, so that --help is there at once; `worker.cli.commands` imports what a command needs.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from worker.base.errors import ConfigError, WorkerError
from worker.cli import commands, logs
from worker.cli.arguments import parser
from worker.cli.commands import FAILED, INTERRUPTED, UNUSABLE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Wrong usage and --help raise SystemExit, as argparse does."""
    arguments = parser().parse_args(argv)
    logs.write_to_stderr(arguments.log_level)
    code = _run(arguments)
    logs.say_what_was_left_out()
    if arguments.command is commands.run and commands.is_held_up():
        # Python would wait for these threads; what they leave behind is no more than a kill would.
        logs.say_what_was_left_out()
        os._exit(code)
    return code


def _run(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        return _fail(error, UNUSABLE, arguments.debug)
    except WorkerError as error:
        return _fail(error, FAILED, arguments.debug)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # after the ^C, or the question that was not answered
        return _fail("interrupted", INTERRUPTED, arguments.debug)
    except BrokenPipeError:
        _give_up_stdout()  # Who read our output has seen enough.
        return FAILED
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and _is_stdout_refused():
            _give_up_stdout()
            return _fail(f"stdout: cannot be written: {error.strerror}", FAILED, arguments.debug)
        hint = "" if arguments.debug else " (--debug shows where)"
        return _fail(f"unexpected {type(error).__name__}: {error}{hint}", FAILED, arguments.debug)


def _is_stdout_refused() -> bool:
    """Whether nothing can be printed: such an error does not say what was written to."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _give_up_stdout() -> None:
    """Python would complain once more when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: object, code: int, debug: bool) -> int:
    logs.say_what_was_left_out()  # The reason is the last thing to be read.
    if debug:
        traceback.print_exc()
    logs.say_at_the_end(error)
    return code
