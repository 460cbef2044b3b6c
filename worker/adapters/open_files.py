"""How many files and connections the process may have open at a time."""

from __future__ import annotations

import resource
from contextlib import suppress


def allow_all() -> None:
    """Have as many as the system lets the process have, where a shell or service manager has set fewer.

    Many start programs with 1,024 for those that use select(2), which nothing here does: three clients with a
    connection to each broker of a large cluster, the store's connections and those of the page may need more.
    """
    given, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if given == most:
        return
    # There are systems whose kernel has a lower bound than the one they name: what was given stays.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
