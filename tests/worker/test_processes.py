"""Several processes from one command: what tells them apart, who is started again, and how all end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.worker.support.configurations import document
from worker import cli, processes
from worker.base.errors import ConfigError
from worker.cli.arguments import parser
from worker.cli.words import by_name
from worker.config import load, loads

CONFIG = document(
    kafka='{bootstrap.servers: "127.0.0.1:1", group.instance.id: host-a}', metrics='{listen: "[::1]:65530"}'
)
WITHIN_S = 20.0
UNUSABLE = 2

SUPERVISOR = """
import sys
from worker import processes
processes.FIRST_PAUSE_S, processes.LONGEST_PAUSE_S = 0.05, 0.1
processes.LEAVE_S = float(sys.argv.pop(1))
processes.STEADY_S = float(sys.argv.pop(1))
have_end = sys.argv.pop(1) == "True"
programs = sys.argv[1:]
commands = [[sys.executable, "-c", program, str(number)] for number, program in enumerate(programs, 1)]
sys.exit(processes.run(commands, final=2, have_end=have_end))
"""
WORK = """
import os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
open(f"started-{sys.argv[1]}-{os.getpid()}", "w").close()
while not asked:
    time.sleep(0.01)
open(f"ended-{sys.argv[1]}-{os.getpid()}", "w").close()
"""
FAIL_ONCE = """
import os, sys
if not os.path.exists("failed"):
    open("failed", "w").close()
    os.kill(os.getpid(), 9)
open("came-back", "w").close()
"""
FAIL = "import sys; open('tries', 'a').write('.'); sys.exit(1)"
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f"started-{sys.argv[1]}", "w").close()
time.sleep(60)
"""


class Command:
    """The supervisor of these programs, a process whose folder is `folder`."""

    def __init__(
        self,
        folder: Path,
        *programs: str,
        steady_s: float = processes.STEADY_S,
        have_end: bool = False,
        leave_s: float = processes.LEAVE_S,
    ) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(leave_s), str(steady_s), str(have_end), *programs],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def await_files(self, pattern: str, n: int = 1) -> list[Path]:
        until_s = time.monotonic() + WITHIN_S
        while len(found := sorted(self.folder.glob(pattern))) < n:
            assert time.monotonic() < until_s, f"{pattern}: {found}"
            time.sleep(0.01)
        return found

    def ends(self) -> int:
        return self.process.wait(WITHIN_S)


def has_ended(pid: int) -> bool:
    """Whether no process of this id is at work any more; one whose parent is gone may wait for init to see to it."""
    until_s = time.monotonic() + WITHIN_S
    while time.monotonic() < until_s:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_each_has_a_name_and_a_port_of_its_own(tmp_path):
    path = tmp_path / "worker.yaml"
    path.write_text(CONFIG)
    config = load(path, {})
    members = [load(path, {}, processes.of_member(config, number)) for number in (1, 2, 3)]
    assert [member.kafka["group.instance.id"] for member in members] == ["host-a-1", "host-a-2", "host-a-3"]
    assert [(member.metrics.host, member.metrics.port) for member in members] == [
        ("::1", 65530), ("::1", 65531), ("::1", 65532),
    ]  # fmt: skip
    assert [member.checkpoint for member in members] == [config.checkpoint] * 3


def test_a_name_that_looks_like_a_number_stays_a_name():
    config = loads(CONFIG.replace("host-a", '"7e3"'), {})
    assert loads(CONFIG, {}, settings=processes.of_member(config, 1)).kafka["group.instance.id"] == "7e3-1"


def test_without_a_name_logs_and_broker_tell_them_apart_all_the_same_and_any_free_port_stays_one():
    config = loads(CONFIG.replace(", group.instance.id: host-a", "").replace("65530", "0"), {})
    assert processes.of_member(config, 2) == {"kafka.client.id": '"amf-worker-2"'}


def test_a_client_id_that_is_given_stays_as_it_is():
    config = loads(CONFIG.replace("group.instance.id: host-a", "client.id: scoring").replace("65530", "0"), {})
    assert processes.of_member(config, 2) == {}


def test_more_processes_than_ports_are_refused():
    config = loads(CONFIG, {})
    with pytest.raises(ConfigError, match="from 65530 on, and 65536 is none"):
        processes.of_member(config, 7)


def test_a_signal_ends_all_in_order(tmp_path):
    command = Command(tmp_path, WORK, WORK)
    command.await_files("started-*", 2)
    command.process.send_signal(signal.SIGINT)
    assert command.ends() == 0
    assert len(command.await_files("ended-*", 2)) == 2


def test_who_ends_unasked_is_started_again_and_the_others_do_not_notice(tmp_path):
    command = Command(tmp_path, WORK, FAIL_ONCE + WORK)
    command.await_files("came-back")
    assert len(command.await_files("started-1-*")) == 1
    command.process.terminate()
    assert command.ends() == 0


def test_all_that_come_to_their_end_are_the_end(tmp_path):
    assert Command(tmp_path, "pass", FAIL_ONCE, have_end=True).ends() == 0


def test_one_that_has_no_end_and_is_told_to_stop_alone_is_started_again(tmp_path):
    """As the runbook says of a worker with a partition that has stopped."""
    command = Command(tmp_path, WORK, WORK)
    [first] = command.await_files("started-2-*")
    os.kill(int(first.name.rpartition("-")[2]), signal.SIGTERM)
    command.await_files("started-2-*", 2)
    assert len(command.await_files("started-1-*")) == 1
    command.process.terminate()
    assert command.ends() == 0


def test_where_every_process_fails_again_and_again_so_does_the_command(tmp_path):
    assert Command(tmp_path, FAIL).ends() == 1
    assert len((tmp_path / "tries").read_text()) == processes.MOST_FAILURES


def test_a_configuration_that_cannot_be_used_ends_all(tmp_path):
    command = Command(tmp_path, WORK, f"import time; time.sleep(1); raise SystemExit({UNUSABLE})")
    assert command.ends() == UNUSABLE
    assert len(command.await_files("ended-1-*")) == 1


def require_both_work_on(command):
    command.await_files("started-2-*")
    assert len(command.await_files("started-1-*")) == 1
    command.process.terminate()
    assert command.ends() == 0


UNUSABLE_AT_ITS_SECOND_START = f"""
import os, sys, time
open('tries', 'a').write('.')
tries = os.path.getsize('tries')
if tries == 1:
    time.sleep(1)
    sys.exit(1)
if tries == 2:
    sys.exit({UNUSABLE})
{WORK}
"""
UNUSABLE_AFTER_ITS_WORK = f"""
import os, sys, time
if not os.path.exists('worked'):
    open('worked', 'w').close()
    time.sleep(1)
    sys.exit({UNUSABLE})
{WORK}
"""


@pytest.mark.parametrize(
    "program", [UNUSABLE_AT_ITS_SECOND_START, UNUSABLE_AFTER_ITS_WORK], ids=["at its second start", "after its work"]
)
def test_who_has_worked_and_then_finds_its_configuration_unusable_does_not_end_the_others(tmp_path, program):
    """The file is being written, or its port is taken, at that moment."""
    require_both_work_on(Command(tmp_path, WORK, program, steady_s=0.9))


def test_who_does_not_end_in_time_is_killed(tmp_path):
    command = Command(tmp_path, STUBBORN, leave_s=0.5)
    command.await_files("started-1")
    command.process.terminate()
    assert command.ends() == 128 + signal.SIGTERM


def test_a_second_signal_ends_all_at_once(tmp_path):
    command = Command(tmp_path, STUBBORN, STUBBORN)
    command.await_files("started-*", 2)
    began_s = time.monotonic()
    command.process.terminate()
    time.sleep(0.3)
    command.process.terminate()
    assert command.ends() == 128 + signal.SIGTERM
    assert time.monotonic() - began_s < 1.5


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent is gone")
def test_nobody_is_left_behind_where_the_command_is_killed(tmp_path):
    command = Command(tmp_path, WORK, WORK)
    pids = [int(path.name.rpartition("-")[2]) for path in command.await_files("started-*", 2)]
    command.process.kill()
    command.ends()
    assert [has_ended(pid) for pid in pids] == [True, True]
    assert len(command.await_files("ended-*", 2)) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent is gone")
def test_nobody_begins_whose_parent_is_gone_before_that_can_be_told():
    for parent, code in ((os.getpid(), 0), (os.getppid(), -signal.SIGTERM)):
        of_parent = partial(processes._end_with_parent, parent)
        assert subprocess.run([sys.executable, "-c", ""], preexec_fn=of_parent).returncode == code


def test_one_that_fails_again_and_again_does_not_end_another_that_failed_long_ago(tmp_path):
    """The one had its failures at the start, and works since then."""
    times = processes.MOST_FAILURES + 1
    late = f"""
import os, signal, sys, time
open('late', 'a').write('.')
if os.path.getsize('late') < {times}:
    sys.exit(1)
{WORK}
"""
    fails = "import os, time; open('tries', 'a').write('.'); time.sleep(0.2); raise SystemExit(1)"
    command = Command(tmp_path, late, fails)
    command.await_files("started-1-*")
    until_s = time.monotonic() + WITHIN_S
    while len((tmp_path / "tries").read_text()) < processes.MOST_FAILURES + 3:
        assert time.monotonic() < until_s
        time.sleep(0.05)
    assert command.process.poll() is None
    command.process.terminate()
    assert command.ends() in (0, 1)
    assert len(command.await_files("ended-1-*")) == 1


@pytest.mark.parametrize("until", [None, "end", "0:10,1:20"])
def test_each_process_is_this_program_with_the_same_options(tmp_path, monkeypatch, until):
    (tmp_path / "worker.yaml").write_text(CONFIG)
    (tmp_path / "worker.py").write_text("raise SystemExit('another one')")
    started: list[list[str]] = []
    ends: list[bool] = []
    monkeypatch.setattr(
        processes, "run", lambda commands, *, have_end, **_: ends.append(have_end) or started.extend(commands) or 0
    )
    options = [] if until is None else ["--until", until]
    given = [
        "run",
        str(tmp_path / "worker.yaml"),
        "--processes",
        "2",
        "--set",
        "metrics.listen=127.0.0.1:9000",
        *options,
    ]
    assert cli.main(given) == 0
    assert ends == [until is not None]
    assert len(started) == 2
    for command, port in zip(started, (9000, 9001), strict=True):
        program, typed = command[: command.index("run")], command[command.index("run") :]
        seen = subprocess.run([*program, "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S)
        assert seen.returncode == 0, seen.stderr
        parsed = parser().parse_args(typed)
        assert parsed.until == parser().parse_args(given).until
        assert dict(parsed.settings)["metrics.listen"] == f'"127.0.0.1:{port}"'
        assert parsed.workers_at == (9000, 9001)


def test_the_name_of_each_process_stands_above_all_that_was_typed(tmp_path, monkeypatch):
    (tmp_path / "worker.yaml").write_text(CONFIG)
    started: list[list[str]] = []
    monkeypatch.setattr(processes, "run", lambda commands, **_: started.extend(commands) or 0)
    typed = ["--set", "kafka.group.instance.id=a", "--set", "kafka={group.instance.id: b}"]
    assert cli.main(["run", str(tmp_path / "worker.yaml"), "--processes", "2", *typed]) == 0
    parsed = [parser().parse_args(command[command.index("run") :]) for command in started]
    found = [load(each.config, {}, by_name(each.settings)).kafka["group.instance.id"] for each in parsed]
    assert found == ["b-1", "b-2"]


def test_where_each_takes_any_free_port_nobody_knows_the_others(tmp_path, monkeypatch):
    (tmp_path / "worker.yaml").write_text(CONFIG.replace("65530", "0"))
    started: list[list[str]] = []
    monkeypatch.setattr(processes, "run", lambda commands, **_: started.extend(commands) or 0)
    assert cli.main(["run", str(tmp_path / "worker.yaml"), "--processes", "2"]) == 0
    assert ["--workers-at" in command for command in started] == [False, False]


def test_who_has_lived_for_a_while_begins_with_the_first_pause_again(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    member = processes._Member("process 1 of 1", ["no-such-program-anywhere"])
    pauses = []
    for lived_s in (0.0, 0.0, 0.0, processes.STEADY_S, 0.0):
        member._started_s = now[0]
        now[0] += lived_s
        member.fail("ended")
        pauses.append(member.start_at_s - now[0])
    assert pauses == [1.0, 2.0, 4.0, 1.0, 2.0]
    for _ in range(processes.MOST_FAILURES):
        member._started_s = now[0]
        member.fail("ended")
    assert member.start_at_s - now[0] == processes.LONGEST_PAUSE_S
    assert member.has_given_up


FAIL_AT_ITS_END = f"""
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
{WORK.replace("signal.signal(signal.SIGTERM, lambda *_: asked.append(1))", "")}
"""
TAKES_NO_NOTICE = "import sys, time; open(f'started-{sys.argv[1]}', 'w').close(); time.sleep(60)"
SAYS_HOW_IT_WAS_ENDED = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))" + WORK.replace(
    "signal.signal(signal.SIGTERM, lambda *_: asked.append(1))", ""
)


@pytest.mark.parametrize(("program", "code"), [(FAIL_AT_ITS_END, 1), (TAKES_NO_NOTICE, 0), (SAYS_HOW_IT_WAS_ENDED, 0)])
def test_the_end_is_in_order_where_that_of_each_is(tmp_path, program, code):
    """SIGTERM itself may end one that has not come to its work yet."""
    command = Command(tmp_path, WORK, program)
    command.await_files("started-*", 2)
    command.process.terminate()
    assert command.ends() == code


def test_each_has_a_group_of_its_own_so_that_a_terminal_reaches_the_command_alone(tmp_path):
    command = Command(tmp_path, WORK, WORK)
    pids = [int(path.name.rpartition("-")[2]) for path in command.await_files("started-*", 2)]
    assert [os.getpgid(pid) for pid in pids] == pids
    command.process.terminate()
    assert command.ends() == 0


def test_who_has_come_to_its_end_is_not_started_again_while_others_work(tmp_path):
    once, later = "open('ended', 'a').write('.')", "import time; time.sleep(1)"
    assert Command(tmp_path, once, later, have_end=True).ends() == 0
    assert (tmp_path / "ended").read_text() == "."


def test_where_all_others_have_come_to_their_end_one_that_fails_again_and_again_fails_the_command(tmp_path):
    assert Command(tmp_path, "pass", FAIL, have_end=True).ends() == 1
    assert len((tmp_path / "tries").read_text()) == processes.MOST_FAILURES


def test_there_are_pauses_between_the_starts_of_one_that_fails(tmp_path):
    began_s = time.monotonic()
    assert Command(tmp_path, FAIL).ends() == 1
    assert time.monotonic() - began_s > 0.05 + 0.1 * (processes.MOST_FAILURES - 2)


def test_one_that_does_not_end_in_time_changes_nothing_in_why_all_were_ended(tmp_path):
    unusable = f"import time; time.sleep(1); raise SystemExit({UNUSABLE})"
    assert Command(tmp_path, STUBBORN, unusable, leave_s=0.5).ends() == UNUSABLE


def test_a_program_that_is_not_there_is_a_failure_and_one_that_does_not_run_hears_no_signal():
    member = processes._Member("process 1 of 1", ["no-such-program-anywhere"])
    member.start()
    assert (member.runs, member.failures) == (False, 1)
    member.signal(signal.SIGTERM)
    assert member.ended() is None
