"""The embedded broker of the demo, as a process: `python -m worker.demo.broker TOPIC...`.

Prints its bootstrap servers once it is ready, and lives until its standard input ends: whatever becomes of the process
that started it, it does not stay behind.
"""

from __future__ import annotations

import sys

from worker.adapters.kafka import start_mock_cluster


def main() -> None:
    cluster, servers = start_mock_cluster(sys.argv[1:])
    print(servers, flush=True)
    sys.stdin.read()
    del cluster


if __name__ == "__main__":
    main()
