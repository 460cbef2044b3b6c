"""What deploy/Dockerfile makes, in a folder instead of an image: its own steps, as a user that may write nothing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from docker.utils.build import exclude_paths
from dockerfile_parse import DockerfileParser
from dockerfile_parse.util import extract_key_values

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where the official images of Python look for programs, Python being in the first."""
CONFIG = """
input: {{topic: events}}
output: {{topic: predictions}}
dead_letter: {{topic: dead-letters}}
kafka: {{bootstrap.servers: "{bootstrap}", group.id: group, group.instance.id: worker-0}}
checkpoint: {{url: "memory://checkpoints"}}
metrics: {{listen: "127.0.0.1:{port}"}}
logging: {{format: human}}
"""
"""Of a worker that is started from the image."""
_UNUSED = shutil.ignore_patterns("test", "site-packages", "__pycache__", "*.a")


class Step(NamedTuple):
    """An instruction of a Dockerfile."""

    instruction: str
    value: str

    @property
    def words(self) -> list[str]:
        """The value where it is a list in the form of JSON."""
        words: list[str] = json.loads(self.value)
        return words


class Stage(NamedTuple):
    """A stage of a Dockerfile, along with what it takes from those that it begins with."""

    steps: list[Step]
    environment: dict[str, str]

    @property
    def arguments(self) -> dict[str, str]:
        """Of a build, with their defaults."""
        values = [step.value for step in self.steps if step.instruction == "ARG"]
        return {name: default for value in values for name, default in extract_key_values(True, {}, {}, value)}

    def only(self, instruction: str) -> Step:
        """The one step of that kind."""
        [step] = [step for step in self.steps if step.instruction == instruction]
        return step


def stages() -> dict[str, Stage]:
    """The stages of deploy/Dockerfile by their names; the last one, which has none, is ""."""
    found: dict[str, Stage] = {}
    stage = Stage([], {})
    with DOCKERFILE.open("rb") as file:
        structure = DockerfileParser(fileobj=file).structure
    for each in structure:
        step = Step(each["instruction"], each["value"])
        if step.instruction == "FROM":
            origin, _, name = step.value.partition(" AS ")
            before = found.get(origin, Stage([], {"PATH": PATH}))
            stage = found[name] = Stage([*before.steps], {**before.environment})
        elif step.instruction == "ENV":
            stage.environment.update(extract_key_values(True, {}, stage.environment, step.value))
        stage.steps.append(step)
    return found


def context() -> list[str]:
    """The files of the checkout that a build gets to see."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    return sorted(path for path in exclude_paths(ROOT, patterns) if (ROOT / path).is_file())


class Image:
    """The image in a folder of its own, as the root of its file system would be; all users can read it.

    Where the tests run as root its commands run as the user of the image, without any privilege; else as ours.
    """

    def __init__(self, root: Path, **arguments: str) -> None:
        """Build it with these arguments, which takes some minutes where all algorithms are compiled."""
        self._root = root
        self._stages = stages()
        self.final = self._stages[""]
        self._python = self._find_python()
        self._build(self._stages["build"], arguments)

    def command(self, *words: str, **variables: str) -> list[str]:
        """A command as its user would run it, in the environment that the image has, and no other."""
        environment = self._environment(self.final, variables)
        return [*self._as_user(), "env", "-i", *(f"{name}={value}" for name, value in environment.items()), *words]

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and time of all that is in it."""
        found = {path: path.lstat() for path in self._root.rglob("*")}
        return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}

    def _build(self, stage: Stage, arguments: Mapping[str, str]) -> None:
        assert arguments.keys() <= stage.arguments.keys()
        os.umask(0o022)
        environment = self._environment(stage, {**stage.arguments, **arguments, "PIP_NO_CACHE_DIR": "0"})
        for step in stage.steps:
            if step.instruction == "COPY":
                source, target = step.value.split()
                assert source == "."
                for path in context():
                    copy = self._inside(target) / path
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / path, copy)
            elif step.instruction == "RUN":
                words = [str(self._inside(word)) if word.startswith("/") else word for word in shlex.split(step.value)]
                done = subprocess.run(words, cwd=self._root, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, done.stdout + done.stderr

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _environment(self, stage: Stage, more: Mapping[str, str]) -> dict[str, str]:
        folders = stage.environment["PATH"].replace("/opt", f"{self._root}/opt")
        environment = {**stage.environment, **more, "PATH": f"{folders}:{self._python}"}
        # pip comes through the same proxies and mirrors as everywhere on this machine.
        network = {
            name: value for name, value in os.environ.items() if name.lower().endswith("_proxy") or "PIP_" in name
        }
        library = {"LD_LIBRARY_PATH": str(self._python.parent / "lib")}
        return {**environment, **(network if stage is not self.final else {}), **library}

    def _find_python(self) -> Path:
        """The folder of an interpreter that every user can run: ours, or a copy of it where root keeps it to itself."""
        home = Path(sys.base_prefix)
        if os.geteuid() != 0 or all(folder.stat().st_mode & 0o005 == 0o005 for folder in (home / "bin").parents):
            return home / "bin"
        copy = self._inside("/usr/local")
        for folder in ("bin", "lib"):
            shutil.copytree(home / folder, copy / folder, symlinks=True, ignore=_UNUSED)
        return copy / "bin"

    def _as_user(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        user, group = self.final.only("USER").value.split(":")
        identity = [f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        return ["setpriv", *identity, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
