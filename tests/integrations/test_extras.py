"""Without its library a module says which extra to install; the library itself needs none of them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

EXTRAS = {"amf.integrations.sklearn": "sklearn", "amf.integrations.river": "river", "amf.plot": "plot"}
LIBRARIES = {"sklearn": "sklearn", "river": "river", "plot": "matplotlib"}


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_a_missing_library_is_named_with_its_extra(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = LIBRARIES[extra]
    for name in [name for name in sys.modules if name == library or name.startswith(f"{library}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf"{module} needs .*pip install '\.\[{extra}\]"):
        importlib.import_module(module)


def test_the_library_alone_brings_none_of_them_in() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, amf; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "numba" in loaded
    assert not loaded & set(LIBRARIES.values())
