"""An admin client that is garbage when its answer arrives, where no broker is."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

from confluent_kafka import TopicCollection

from worker.adapters.kafka.asker import AdminClient

ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0


def test_a_client_is_garbage_that_its_own_thread_collects() -> None:
    """It would abort the process: so it is asked in another one."""
    program = [sys.executable, "-m", "tests.kafka.test_asker"]
    done = subprocess.run(program, cwd=ROOT, timeout=WITHIN_S, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    gc.disable()
    admin = AdminClient({"bootstrap.servers": "localhost:1", "log_level": 0})
    answer = admin.describe_topics(TopicCollection(["events"]), request_timeout=0.5)["events"]
    collected = threading.Event()
    answer.add_done_callback(lambda _: (gc.collect(), collected.set()))
    cycle: list[object] = [admin]
    cycle.append(cycle)
    del admin, cycle
    assert collected.wait(WITHIN_S / 2)
