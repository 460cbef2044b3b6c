"""Imports go one way: MAY_IMPORT says which module of ours may import which, LIBRARIES where each library comes in.

A new module fails here until it has its row. Before a row grows, think about whether the module is in the right place.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

BASE, CONFIG = "worker.base.*", "worker.config worker.config.*"
CODEC, CHECKPOINT = "worker.codec worker.codec.*", "worker.checkpoint worker.checkpoint.*"
ADAPTERS = "worker.adapters.*"
PROGRAMS = "worker.cli worker.cli.* worker.demo worker.demo.* worker.__main__"

MAY_IMPORT = {
    # The library, from the ground up: a folder imports those above it. A system never imports another.
    "amf.jit amf.inputs amf.memory amf.geometry amf.adaptation amf.statistics amf.calibration amf.kernels "
    "amf.systems amf.state amf.serialization amf.forests": "",
    "amf.jit.*": "amf.jit.*",
    "amf.inputs.*": "amf.inputs.*",
    "amf.params": "amf.inputs.*",
    "amf.partition_params": "amf.inputs.* amf.params",
    "amf.memory.*": "amf.jit.* amf.memory.*",
    "amf.geometry.*": "amf.jit.* amf.memory.* amf.geometry.*",
    "amf.adaptation.*": "amf.jit.* amf.inputs.* amf.memory.* amf.geometry.* amf.adaptation.*",
    "amf.statistics.*": "amf.jit.* amf.inputs.* amf.memory.* amf.geometry.* amf.statistics.*",
    "amf.calibration.*": "amf.jit.* amf.inputs.* amf.statistics.* amf.calibration.*",
    "amf.kernels.*": (
        "amf.jit.* amf.params amf.memory.* amf.geometry.* amf.adaptation.* amf.statistics.* amf.calibration.interface "
        "amf.kernels.*"
    ),
    "amf.systems.*": (
        "amf.jit.* amf.memory.* amf.geometry.* amf.adaptation.* amf.calibration.* amf.statistics.* amf.kernels.*"
    ),
    "amf.state.*": (
        "amf.jit.* amf.inputs.* amf.memory.* amf.geometry.* amf.adaptation.* amf.kernels.* amf.params amf.state.*"
    ),
    "amf.serialization.*": (
        "amf.jit.* amf.memory.* amf.geometry.* amf.adaptation.* amf.kernels.* amf.state.* amf.serialization.*"
    ),
    "amf.forests.*": (
        "amf.jit.* amf.inputs.* amf.memory.* amf.geometry.* amf.adaptation.* amf.calibration.* "
        "amf.statistics.* amf.kernels.* amf.systems.* amf.params amf.partition_params amf.state.* "
        "amf.serialization.* amf.forests.*"
    ),
    "amf.registry": "amf.serialization.* amf.forests.*",
    "amf.precompile": "amf.jit.* amf.forests.* amf.registry",
    "amf": (
        "amf.jit.* amf.inputs.* amf.calibration.* amf.kernels.* amf.params amf.partition_params amf.state.* "
        "amf.serialization.* amf.forests.* amf.registry amf.precompile"
    ),
    "amf.integrations amf.integrations.*": "amf amf.inputs.*",
    "amf.plot": "amf",
    # The worker's core, which decides. It knows the library by its public room alone.
    "worker worker.base worker.state worker.task worker.commit worker.runtime worker.repartition worker.adapters": "",
    BASE: BASE,
    # Which keys a model has follows from the parameters of the forests.
    "worker.config.model": f"{BASE} {CONFIG} amf",
    CONFIG: f"{BASE} {CONFIG}",
    CODEC: f"{BASE} {CODEC}",
    CHECKPOINT: f"{BASE} {CHECKPOINT}",
    "worker.state.*": f"{BASE} {CONFIG} {CODEC} worker.checkpoint worker.state.* amf",
    "worker.task.*": f"{BASE} {CONFIG} {CODEC} {CHECKPOINT} worker.state.* worker.task.* amf",
    "worker.commit.*": f"{BASE} worker.commit.*",
    "worker.repartition.*": f"{BASE} {CONFIG} {CODEC} worker.commit.* worker.repartition.* amf",
    "worker.preflight": f"{BASE} {CONFIG} {CHECKPOINT} {ADAPTERS}",
    "worker.runtime.*": f"{BASE} worker.config worker.codec.dead_letters worker.checkpoint worker.state.cache "
    "worker.state.descriptions worker.task.* worker.commit.* worker.runtime.*",
    # The adapters, which act, each with one library.
    "worker.adapters.kafka.vetting": "worker.base.limits worker.codec.dead_letters",
    "worker.adapters.kafka.reading": "worker.base.limits worker.adapters.kafka.vetting",
    ADAPTERS: f"{BASE} {CONFIG} worker.adapters.kafka.* worker.adapters.http.*",
    # The service joins the two; the programs run it.
    "worker.until": f"{BASE} {CONFIG} worker.preflight {ADAPTERS}",
    "worker.service": f"worker worker.preflight worker.until {BASE} {CONFIG} worker.checkpoint {ADAPTERS} "
    "worker.state.targets worker.task.warm_start worker.runtime.* worker.repartition.* amf",
    "worker.processes": f"{BASE} {CONFIG}",
    PROGRAMS: "amf worker worker.*",
}
"""Modules of ours -> what they may import of ours. The first row that names a module counts."""

LIBRARIES = {
    "numpy": "amf amf.* worker.*",
    "numba": "amf.jit.* amf.memory.addresses amf.geometry.boxes amf.statistics.class_counts",
    "msgspec": "worker.*",
    "confluent_kafka": "worker.adapters.kafka.*",
    "fastavro": "worker.adapters.kafka.reading",
    "jsonschema_rs": "worker.adapters.kafka.*",
    "obstore": "worker.adapters.store",
    "prometheus_client": "worker.adapters.http.exposition",
    "yaml": "worker.config worker.config.nodes worker.config.reader worker.config.settings",
    "pyarrow": "worker.cli.dataset.parquet",
    "shtab": "worker.cli.completion",
    "rich": "worker.cli.terminal worker.demo.screen",
    "sklearn": "amf.integrations.*",
    "river": "amf.integrations.*",
    "matplotlib": "amf.plot",
}
"""Libraries -> the modules of ours through which they come in."""


class Import(NamedTuple):
    target: str
    line: int
    deferred: bool
    """Whether it stands within a function."""


def matches(module: str, patterns: str) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns.split())


def find_modules(root: Path) -> dict[str, Path]:
    """Our modules by their dotted names; a package goes by the name of its folder."""
    paths = (path for package in ("amf", "worker") for path in (root / package).rglob("*.py"))
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


MODULES = find_modules(ROOT)


def imports_of(module: str, source: str, is_package: bool = False) -> Iterator[Import]:
    """What a module imports: modules of ours by their full names, libraries by their first."""
    tree = ast.parse(source)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    within_functions = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if is_package else module.split(".")[:-1]
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, node.module] if node.module else above)
            names = [f"{origin}.{alias.name}" for alias in node.names]
            # `from worker import codec` imports a module, `from worker.codec import decode` a name of one.
            names = [name if name in MODULES else origin for name in names]
        else:
            continue
        for name in names:
            first = name.split(".")[0]
            yield Import(name if first in ("amf", "worker") else first, node.lineno, id(node) in within_functions)


def imports_in(module: str) -> list[Import]:
    path = MODULES[module]
    return list(imports_of(module, path.read_text(), path.name == "__init__.py"))


def row_of(module: str) -> str | None:
    """What `module` may import of ours; None where no row names it."""
    return next((allowed for modules, allowed in MAY_IMPORT.items() if matches(module, modules)), None)


def complaint(module: str, found: Import) -> str | None:
    """Why `module` must not do this import; None where it may."""
    target, allowed = found.target, row_of(module)
    where = f"{module}, line {found.line}, imports {target}"
    if target in sys.stdlib_module_names:
        return None
    if target.split(".")[0] not in ("amf", "worker"):
        rooms = LIBRARIES.get(target)
        if rooms is None:
            return f"{where}: a library without a row in LIBRARIES"
        return None if matches(module, rooms) else f"{where}: this library comes in through {rooms} only"
    if allowed is None or matches(target, allowed):
        return None
    return f"{where}: of ours it may import only {allowed or 'nothing'}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_what_its_rows_allow(module: str) -> None:
    assert row_of(module) is not None, f"{module} has no row in MAY_IMPORT: say what it may import"
    complaints = [complaint(module, found) for found in imports_in(module)]
    if any(complaints):
        pytest.fail("\n".join(filter(None, complaints)), pytrace=False)


@pytest.mark.parametrize("modules", MAY_IMPORT)
def test_a_row_allows_nothing_that_is_not_imported(modules: str) -> None:
    importing = [module for module in MODULES if row_of(module) == MAY_IMPORT[modules]]
    targets = {found.target for module in importing for found in imports_in(module)}
    for allowed in MAY_IMPORT[modules].split():
        module = allowed.removesuffix(".*")
        room = ".".join(module.split(".")[:2])
        assert module in MODULES, f"{allowed}: there is no such module"
        assert any(f"{target}.".startswith(f"{room}.") for target in targets), f"{allowed}: not imported"


def test_no_module_is_longer_than_a_reader_can_keep_in_mind() -> None:
    lengths = {
        path: len(path.read_text().splitlines()) for room in ("amf", "worker") for path in ROOT.glob(f"{room}/**/*.py")
    }
    assert {path: length for path, length in lengths.items() if length > 400} == {}


TESTS = {path: path.read_text() for path in (ROOT / "tests").rglob("*.py")}


def test_files_of_tests_are_short_as_well() -> None:
    lengths = {path: len(text.splitlines()) for path, text in TESTS.items()}
    assert {path: length for path, length in lengths.items() if length > 500} == {}


def test_no_file_of_tests_is_imported() -> None:
    """What several of them need is a module of its own: pytest would have the file a second time under another name."""
    imported = {
        (path.name, module)
        for path, text in TESTS.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
        if module and module.rpartition(".")[2].startswith("test_")
    }
    assert imported == set()


def test_no_function_needs_a_second_reading_for_its_length() -> None:
    lengths = {
        f"{module}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > 70} == {}


def test_no_modules_import_each_other() -> None:
    graph = {
        module: {i.target for i in imports_in(module) if i.target in MODULES and not i.deferred} for module in MODULES
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("worker.runtime.loop", "from worker.adapters.kafka import KafkaConsumer"),
        ("worker.runtime.loop", "from worker import store"),
        ("worker.runtime.loop", "from ..adapters import store"),
        ("worker.runtime.loop", "import confluent_kafka"),
        ("worker.runtime.loop", "def run():\n    from confluent_kafka.admin import AdminClient"),
        ("worker.state.model_store", "import amf.forests.forest"),
        ("worker.state.model_store", "from amf.forests.forest import AMFClassifier"),
        ("worker.state.model_store", "from amf.forests import forest"),
        ("worker.runtime.loop", "from worker.adapters.http import serve"),
        ("worker.base.metrics", "import prometheus_client"),
        ("worker.base.metrics", "from worker.config import Address"),
        ("worker.checkpoint", "import worker.task.task"),
        ("worker.task.task", "import worker.runtime.loop"),
        ("worker.state.model_store", "from worker.task.task import Task"),
        ("worker.commit.transactions", "from worker.task.task import Task"),
        ("worker.adapters.kafka", "import worker.runtime.loop"),
        ("worker.service", "import worker.cli"),
        ("worker.codec", "import orjson"),
        ("worker.codec.avro", "import fastavro"),
        ("worker.codec.avro", "from worker.adapters.kafka.registry import open_registry"),
        ("amf.serialization.canonical", "from amf.forests.forest import Forest"),
        ("amf.forests.forest", "def dumps(self):\n    from amf.registry import loads"),
        ("amf.systems.amf_classifier", "from .mondrian import walk"),
        ("amf.forests.forest", "import worker.base.records"),
    ],
)
def test_a_forbidden_import_is_seen(module: str, source: str) -> None:
    [found] = imports_of(module, source)
    assert complaint(module, found) is not None


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("worker.runtime.loop", "import asyncio.events"),
        ("worker.runtime.loop", "from .buffer import Backlog"),
        ("worker.adapters.kafka.registry", "from confluent_kafka.schema_registry import SchemaRegistryClient"),
        ("worker.task.processor", "from worker import codec"),
        ("worker.state.model_store", "from amf import AMFClassifier"),
        ("worker.adapters.kafka.admin", "from confluent_kafka.admin import AdminClient"),
        ("amf.forests.forest", "from amf.serialization import canonical"),
        ("worker.task.task", "from worker import checkpoint"),
        ("worker.task.checkpointer", "from worker.base.metrics import Metrics"),
        ("worker.adapters.http", "from worker.base.metrics import Metrics"),
        ("worker.service", "from worker import __version__"),
        ("worker.service", "from worker.adapters.kafka import KafkaConsumer"),
        ("worker.cli", "from worker.service import run"),
    ],
)
def test_an_allowed_import_is_not(module: str, source: str) -> None:
    [found] = imports_of(module, source)
    assert complaint(module, found) is None


def test_a_module_without_a_row_is_seen() -> None:
    assert row_of("worker.surprise") is None
    assert row_of("worker.config.kafka") == f"{BASE} {CONFIG}"
