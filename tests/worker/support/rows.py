"""Files of rows for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

CsvFile = Callable[[str | bytes], Path]
NpzFile = Callable[..., Path]

PEOPLE = "age,income,city,churned\n41,1.5e3,Rome,yes\n,-0.25,Oslo,no\n33,7,Rome,\n"
