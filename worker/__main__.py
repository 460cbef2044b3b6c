"""`python -m worker` is `amf-worker`: the first lines of the program, so that Ctrl-C is no traceback from here on."""

import faulthandler
import os
import signal
import sys

_TERMINATED = 128 + signal.SIGTERM


def main() -> int:
    """Run the command line; returns the exit code."""
    # The first process of a container has no default for it: until a command has a handler, none would stop it.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(_TERMINATED))
    _open_standard_streams()
    faulthandler.enable()  # A crash of a library in C says where.
    try:
        from worker import cli

        return cli.main()
    except KeyboardInterrupt:
        # While modules were still being imported, or again while the first Ctrl-C was being answered.
        print("amf-worker: interrupted", file=sys.stderr)
        return 130


def _open_standard_streams() -> None:
    """Have something to write to where the program was started without it (pythonw, `2>&-`).

    Else Python has None in its place, which nobody expects, and the next file or socket to be opened gets the number of
    the one that is closed, to which libraries in C write their complaints.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                descriptor = os.open(os.devnull, os.O_RDWR)
                if descriptor != number:
                    os.dup2(descriptor, number)
                    os.close(descriptor)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())
