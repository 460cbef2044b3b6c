"""Kafka's own jars, fetched once through Maven into the project's cache folder."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.availability import Unavailable

KAFKA_VERSION = "4.1.1"
OLDEST_JAVA = 17

CACHE = Path(__file__).parents[2] / ".cache"
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

# Kafka logs through slf4j and its pom names no backend: without one, a start that fails would say nothing.
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>amf</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>{KAFKA_VERSION}</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def find_java() -> str:
    """Path of a Java that can run Kafka; raises Unavailable."""
    java = shutil.which("java")
    if java is None:
        raise Unavailable("Java is not installed")
    version = java_version(java)
    found = re.search(r'version "(\d+)', version)
    if found is None or int(found[1]) < OLDEST_JAVA:
        raise Unavailable(f"Kafka {KAFKA_VERSION} needs Java {OLDEST_JAVA} or newer, found {version.strip()[:80]}")
    return java


@functools.cache
def java_version(java: str) -> str:
    """What a Java says of itself."""
    return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr


def kafka_libs(cache: Path = CACHE) -> Path:
    """Folder that holds the jars of a whole broker, downloaded where missing; raises Unavailable."""
    home = cache / f"kafka-{KAFKA_VERSION}"
    if not home.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        # The folder gets its name when it is complete: what an interrupted download leaves is never taken for the jars.
        unfinished = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=cache))
        try:
            _download(unfinished)
            unfinished.rename(home)
        except OSError:
            if not home.is_dir():  # else another process was faster, and its copy is as good
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return home / "libs"


def _download(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven is not installed")
    (folder / "pom.xml").write_text(POM)
    command = [maven, "-q", "-B", COPY_DEPENDENCIES, "-DincludeScope=runtime", "-DoutputDirectory=libs"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        raise Unavailable("Maven did not fetch Kafka's jars within 600 s") from None
    if done.returncode != 0:
        raise Unavailable(f"Maven could not fetch Kafka's jars: {(done.stdout + done.stderr).strip()[-500:]}")
