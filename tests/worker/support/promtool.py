"""Prometheus's own check of a page of metrics."""

from __future__ import annotations

import subprocess

from tests.availability import program


def complaints(exposition: str) -> str:
    """What promtool says of the page: nothing where all is well."""
    command = [program("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=exposition, text=True, capture_output=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    return said or (f"exit code {done.returncode}" if done.returncode else "")
