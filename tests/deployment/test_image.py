"""deploy/Dockerfile: what it says, and its own steps in a folder, from which a worker starts without any privilege."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deployment.image import CONFIG, ROOT, Image, context, stages
from tests.kafka.broker import Broker
from worker.config.model import ModelParams

PORT = "9464"
WITHIN_S = 300.0


def test_a_build_sees_what_the_image_is_made_of_and_nothing_else() -> None:
    seen = context()
    folders = {path.partition("/")[0] for path in seen}
    assert folders == {".dockerignore", "amf", "worker", "config", "deploy", "pyproject.toml", "README.md", "LICENSE"}
    assert [path for path in seen if path.startswith("deploy/")] == ["deploy/build.sh", "deploy/requirements.txt"]
    assert not [path for path in seen if path.endswith((".pyc", ".nbc"))]
    assert (ROOT / "deploy/build.sh").stat().st_mode & 0o111 == 0o111


def test_the_libraries_of_the_image_are_those_that_the_package_asks_for() -> None:
    """Whoever changes a range in pyproject.toml has to renew the list: make requirements."""
    text = (ROOT / "deploy/requirements.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+) \\\n    --hash=sha256:", text, re.MULTILINE))
    assert len(pinned) == text.count("==")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["registry"]])
    for each in asked:
        assert each.specifier.contains(pinned[canonicalize_name(each.name)]), each


def test_licences_of_what_the_package_brings_along_are_those_of_its_metadata() -> None:
    """uPlot, which draws the page of a worker, is another's and under the MIT License."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*ROOT.glob("LICENSE"), *(ROOT / "amf").rglob("*license*"), *(ROOT / "worker").rglob("*license*")]
    assert {str(path.relative_to(ROOT)) for path in texts} == set(project["license-files"])
    assert project["license"] == "Apache-2.0 AND MIT"
    label = re.search(r'image\.licenses="([^"]*)"', stages()[""].only("LABEL").value)
    assert label is not None
    assert label[1] == project["license"]


def test_the_package_says_of_itself_what_is_so() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classifiers = project["classifiers"]
    # The tests run on one version of Python, that of the image: no other is claimed.
    [least] = [each.removeprefix(">=") for each in project["requires-python"].split(",")]
    versions = [each for each in classifiers if re.fullmatch(r"Programming Language :: Python :: \d\.\d+", each)]
    assert versions == [f"Programming Language :: Python :: {least}"]
    assert "Typing :: Typed" in classifiers
    assert all((ROOT / package / "py.typed").exists() for package in ("amf", "worker"))
    # The licence has a key of its own, beside which indexes refuse classifiers of licences (PEP 639).
    assert not [each for each in classifiers if each.startswith("License ::")]


def test_kernels_are_compiled_for_the_cpu_that_is_asked_for_where_the_image_runs() -> None:
    build, final = stages()["build"], stages()[""]
    assert build.environment["NUMBA_CPU_NAME"] == final.environment["NUMBA_CPU_NAME"] == "generic"


FAKE_PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\n[ "$1" = -P ] || exit 0\\nPYTHONPATH={amf} exec {python} "$@"\\n' > "$3/bin/python"
chmod 755 "$3/bin/python"
"""
FAKE_AMF = """
from types import SimpleNamespace
SYSTEMS = {"trees": "Trees", "bushes": "Bushes"}
def compile_kernels(systems, threads):
    print(*systems, threads)
    return SimpleNamespace(compiled=7)
"""


def built(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """What deploy/build.sh does where Python installs nothing, and a package of two algorithms compiles nothing."""
    (tmp_path / "amf.py").write_text(FAKE_AMF)
    (tmp_path / "python3").write_text(FAKE_PYTHON.format(amf=tmp_path, python=sys.executable))
    (tmp_path / "python3").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NUMBA_CPU_NAME": "generic", **variables}
    command = [str(ROOT / "deploy/build.sh"), str(tmp_path / "opt")]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_all_algorithms_are_compiled_unless_some_are_named(tmp_path: Path) -> None:
    assert stages()["build"].arguments == {"ALGORITHMS": ""}
    for named, compiled in (("", "Trees Bushes"), ("bushes", "Bushes"), ("bushes trees", "Bushes Trees")):
        assert built(tmp_path, ALGORITHMS=named).stdout == f"{compiled} True\n7 kernels compiled\n"
    refused = built(tmp_path, ALGORITHMS="bushes herbs")
    assert refused.returncode != 0
    assert "herbs; there are trees, bushes" in refused.stderr


def test_the_image_is_no_root_and_has_its_labels_and_its_command() -> None:
    final = stages()[""]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final.only("USER").value)
    assert final.only("ENTRYPOINT").words == ["amf-worker"]
    assert final.only("CMD").words == ["run", "/etc/amf/worker.yaml"]
    assert not [step for step in final.steps if step.instruction == "RUN"]
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", final.only("LABEL").value))
    assert labels == {"title", "description", "licenses", "version", "revision"}
    assert final.only("EXPOSE").value == PORT


def health_check(port: int) -> list[str]:
    """The command of the health check, asking another port than that of the image."""
    _, _, command = stages()[""].only("HEALTHCHECK").value.partition("CMD ")
    words = stages()[""].only("HEALTHCHECK")._replace(value=command).words
    assert sum(word.count(PORT) for word in words) == 1
    return [word.replace(PORT, str(port)) for word in words]


class Started:
    """A worker that runs as the image says, and what it has logged."""

    def __init__(self, command: list[str], folder: Path, log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def log(self) -> str:
        return self._log.read_text()

    def wait(self, condition: Callable[[str], object]) -> None:
        """Wait until it has logged what is wanted. Raises AssertionError where it ends, or takes for ever."""
        deadline = time.monotonic() + WITHIN_S
        while not condition(self.log()):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)


@contextmanager
def worker(image: Image, config: Path, log: Path, **variables: str) -> Iterator[Started]:
    """The worker as the image starts it, until it is live; at the end it must end in order."""
    final = image.final
    program, (verb, _) = final.only("ENTRYPOINT").words, final.only("CMD").words
    command = image.command(*program, verb, str(config), **variables)
    started = Started(command, config.parent, log)
    try:
        started.wait(lambda log: "is live at offset" in log)
        yield started
        started.process.terminate()
        assert started.process.wait(60) == 0, started.log()
    finally:
        started.process.kill()
        started.process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users can read, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="amf-image-", ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.mark.full
def test_a_worker_of_the_image_compiles_nothing_and_writes_nothing(
    own_broker: Broker, folder: Path, tmp_path: Path
) -> None:
    """And with another CPU than that of the build it compiles in memory, says so, and starts all the same.

    The image has the kernels of the one algorithm that the configuration names: a worker asks for no other's.
    """
    for topic in ("events", "predictions", "dead-letters"):
        own_broker.create_topic(topic)
    image = Image(folder, ALGORITHMS=ModelParams().algorithm)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    config = folder / "worker.yaml"
    config.write_text(CONFIG.format(bootstrap=own_broker.bootstrap, port=port))
    before, healthy = image.files(), image.command(*health_check(port))
    with worker(image, config, tmp_path / "worker.log") as started:
        assert re.search(r"kernels ready in .* s: [1-9]\d* loaded, 0 compiled$", started.log(), re.MULTILINE)
        assert subprocess.run(healthy, cwd=folder).returncode == 0
    assert subprocess.run(healthy, cwd=folder, capture_output=True).returncode != 0
    with worker(image, config, tmp_path / "other.log", NUMBA_CPU_NAME="") as started:
        assert re.search(r"kernels ready in .* s: 0 loaded, [1-9]\d* compiled$", started.log(), re.MULTILINE)
        [said] = [line for line in started.log().splitlines() if "WARNING" in line and "compiling" in line]
        assert "no folder keeps it" in said
        assert "NUMBA_CACHE_DIR" in said
    assert image.files() == before
