"""What becomes of the files of checkpoints, as a store may damage them, and is mended in the end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

from tests.worker.support.ledger import Ledger

FOREST = b"AMFF"
"""What the bytes of a forest begin with. They end with their hash."""


class Damage:
    """Files that are damaged; each one is so once."""

    def __init__(self, rng: random.Random, store: Ledger, note: Callable[[str], object]) -> None:
        """note: told of each file that is damaged."""
        self._rng = rng
        self._store = store
        self._note = note
        self._damaged: dict[str, bytes] = {}
        """What they were."""

    def strike(self) -> None:
        """One file is cut off, has a bit flipped, is another one, or is gone."""
        names = self._whole()
        if not names:
            return
        name = self._rng.choice(names[-4:] if self._rng.random() < 0.5 else names)
        data = self._store.objects[name]
        place = self._rng.randrange(len(data) or 1)
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if data else b"?"
        other = self._store.objects[self._rng.choice(names)]
        alike = [each for each in names if each != name and len(self._store.objects[each]) == len(data)]
        stale = self._store.objects[self._rng.choice(alike)] if alike else flipped
        self._replace(name, self._rng.choice((data[:place], flipped, other, stale, None)))

    def forge_models(self) -> None:
        """Every model in the store becomes one that could be loaded. Its hash alone says that it is another one."""
        for name in self._whole():
            if name.endswith(".segment"):
                models = self._store.objects[name].split(FOREST)[1:]
                self._replace(name, b"".join(_forged(FOREST + model) for model in models))

    def repair(self) -> None:
        """All files are again what they were."""
        self._store.objects |= self._damaged

    def _whole(self) -> list[str]:
        return sorted(self._store.objects.keys() - self._damaged.keys())

    def _replace(self, name: str, damaged: bytes | None) -> None:
        self._damaged[name] = self._store.objects[name]
        if damaged is None:
            del self._store.objects[name]
        else:
            self._store.objects[name] = damaged
        self._store.tampered.add(name)
        self._note(name)


def _forged(forest: bytes) -> bytes:
    """A sound forest with another name of a class."""
    body = forest[: -hashlib.sha256().digest_size].replace(b'"a"', b'"z"', 1)
    return body + hashlib.sha256(body).digest()
