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

AMF_BASE = (
    "amf._cache amf._parts amf._kernel amf.vectors amf.pages amf.addresses amf.labels amf.params amf.rng "
    "amf.elementary amf.boxes amf.forecasters amf.aggregation amf.losses "
    "amf.arena amf.modes"
)
AMF_KERNELS = (
    "amf.cuts amf.cells amf.class_counts amf.descent amf.walk amf.binding amf.batches amf.scaling amf.shifting "
    "amf.forgetting amf.packing amf.explain amf.halving amf.soundness amf.attributions"
)
AMF_TREES = f"{AMF_BASE} {AMF_KERNELS}"
AMF_FAMILIES = "amf.classifier amf.regressor amf.unrestricted"
AMF_CALIBRATIONS = "amf.class_calibration amf.number_calibration"
AMF_FORESTS = f"{AMF_TREES} amf.systems.* {AMF_CALIBRATIONS} amf.forest {AMF_FAMILIES}"

BASE = "worker.errors worker.records worker.ports worker.patience worker.failpoints"
CONFIG = "worker.config worker.config.*"
CHECKPOINT = "worker.checkpoint worker.checkpoint.*"
PARTS = f"worker.codec worker.codec.* worker.envelope worker.rejects worker.metrics {CHECKPOINT}"
BELOW_MODELS = f"{BASE} {CONFIG} {PARTS} amf"
STATE = (
    "worker.partitioner worker.warm_start worker.learners worker.model worker.slot worker.cache worker.snapshot "
    "worker.models worker.intake "
    "worker.partition"
)
CORE = (
    f"{BELOW_MODELS} {STATE} worker.beginning worker.until worker.watch worker.keeper worker.pending "
    "worker.transaction worker.backlog worker.reloads worker.reports worker.runtime worker.model_key worker.forwarder"
)
ADAPTERS = "worker.kafka worker.kafka.* worker.store worker.spill worker.exposition"
PROGRAMS = "worker.cli worker.cli.* worker.__main__ worker.demo worker.demo.*"

MAY_IMPORT = {
    # The library, from the ground up. A system never imports another.
    AMF_BASE: AMF_BASE,
    AMF_TREES: AMF_TREES,
    "amf.features amf.systems": "",
    "amf.systems.*": f"{AMF_TREES} {AMF_CALIBRATIONS}",
    AMF_CALIBRATIONS: AMF_TREES,
    "amf.serialize": AMF_TREES,
    "amf.forest": f"{AMF_TREES} amf.serialize",
    "amf.classifier amf.regressor": f"{AMF_TREES} amf.systems.* {AMF_CALIBRATIONS} amf.forest",
    "amf.unrestricted": AMF_FORESTS,
    "amf.learner": AMF_TREES,
    "amf.registry": f"{AMF_FORESTS} amf.serialize amf.learner",
    "amf.kernels": "amf.learner amf.registry",
    "amf.many": f"{AMF_TREES} amf.forest",
    "amf": f"{AMF_FORESTS} amf.features amf.serialize amf.learner amf.registry amf.kernels amf.many",
    "amf.integrations amf.integrations.* amf.plot": "amf",
    # The worker's core, which decides. It knows the library by its public room alone.
    "worker": "",
    BASE: BASE,
    # What a model can be told follows from the parameters of the forests.
    "worker.config.model": f"{BASE} {CONFIG} amf",
    CONFIG: f"{BASE} {CONFIG}",
    "worker.codec worker.codec.* worker.envelope": f"{BASE} worker.codec.* worker.rejects",
    CHECKPOINT: f"{BASE} worker.checkpoint.*",
    PARTS: BASE,
    "worker.learners": BELOW_MODELS,
    "worker.model": f"{BELOW_MODELS} worker.learners",
    "worker.models": f"{BELOW_MODELS} worker.learners worker.model worker.slot worker.cache worker.snapshot",
    "worker.partitioner worker.allocator": "",
    "worker.warm_start": f"{BASE} {CHECKPOINT} worker.partitioner",
    "worker.slot": f"{BASE} {CHECKPOINT} worker.learners worker.model",
    "worker.cache": f"{BASE} worker.metrics worker.slot",
    "worker.snapshot": f"{CHECKPOINT} worker.slot",
    "worker.intake": f"{BELOW_MODELS} worker.model worker.models",
    "worker.partition": f"{BELOW_MODELS} worker.models worker.slot worker.cache worker.snapshot worker.intake",
    "worker.refusals": "",
    "worker.watch": f"{BASE} worker.refusals",
    "worker.until": BASE,
    "worker.reloads": BASE,
    "worker.backlog": f"{BASE} worker.partition worker.until",
    "worker.reports": f"{BASE} worker.metrics worker.cache worker.intake worker.partition",
    "worker.beginning": f"{BASE} {CONFIG} {CHECKPOINT} amf worker.refusals worker.warm_start",
    "worker.keeper": f"{BELOW_MODELS} worker.models worker.snapshot worker.partition worker.beginning",
    "worker.opening": f"{BASE} worker.partition worker.keeper",
    "worker.pending": BASE,
    "worker.transaction": f"{BASE} worker.metrics worker.pending",
    "worker.model_key": f"{BASE} {CONFIG} worker.codec worker.codec.* worker.rejects",
    "worker.forwarder": f"{BELOW_MODELS} worker.model_key worker.pending worker.transaction worker.refusals",
    "worker.runtime": f"{BELOW_MODELS} worker.cache worker.models worker.intake worker.partition worker.keeper "
    "worker.warm_start worker.opening worker.pending worker.transaction worker.beginning worker.until worker.watch "
    "worker.backlog worker.reports worker.refusals worker.reloads",
    "worker.checks": f"{BASE} {CONFIG} {CHECKPOINT} worker.refusals {ADAPTERS}",
    # The adapters, which act, each with one library.
    "worker.exposition": f"{BASE} {CONFIG} worker.metrics",
    "worker.kafka.vetting": "worker.rejects",
    ADAPTERS: f"{BASE} {CONFIG} worker.kafka.*",
    # The service joins the two; the programs run it.
    "worker.service": f"worker worker.allocator worker.checks {CORE} {ADAPTERS}",
    PROGRAMS: "amf worker worker.*",
}
"""Modules of ours -> what they may import of ours. The first row that names a module counts."""

LIBRARIES = {
    "numpy": "amf amf.* worker.*",
    "numba": "amf.*",
    "msgspec": "worker.*",
    "confluent_kafka": "worker.kafka.*",
    "obstore": "worker.store",
    "prometheus_client": "worker.exposition",
    "yaml": "worker.config",
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
        ("worker.runtime", "from worker.kafka import KafkaConsumer"),
        ("worker.runtime", "from worker import store"),
        ("worker.runtime", "from . import store"),
        ("worker.runtime", "import confluent_kafka"),
        ("worker.runtime", "def run():\n    from confluent_kafka.admin import AdminClient"),
        ("worker.models", "import amf.forest"),
        ("worker.models", "from amf.forest import AMFClassifier"),
        ("worker.models", "from amf import forest"),
        ("worker.runtime", "from worker.exposition import serve"),
        ("worker.metrics", "import prometheus_client"),
        ("worker.metrics", "from worker.config import Address"),
        ("worker.checkpoint", "import worker.partition"),
        ("worker.partition", "import worker.keeper"),
        ("worker.kafka", "import worker.runtime"),
        ("worker.service", "import worker.cli"),
        ("worker.codec", "import orjson"),
        ("worker.codec.avro", "import fastavro"),
        ("worker.codec.avro", "from worker.kafka.registry import open_registry"),
        ("amf.serialize", "from amf.forest import Forest"),
        ("amf.forest", "def dumps(self):\n    from amf.registry import loads"),
        ("amf.systems.amf_classifier", "from .mondrian import walk"),
        ("amf.forest", "import worker.records"),
    ],
)
def test_a_forbidden_import_is_seen(module: str, source: str) -> None:
    [found] = imports_of(module, source)
    assert complaint(module, found) is not None


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("worker.runtime", "import asyncio.events"),
        ("worker.runtime", "from .codec import decode"),
        ("worker.kafka.registry", "from confluent_kafka.schema_registry import SchemaRegistryClient"),
        ("worker.runtime", "from worker import codec"),
        ("worker.models", "from amf import AMFClassifier"),
        ("worker.kafka.admin", "from confluent_kafka.admin import AdminClient"),
        ("amf.forest", "from amf import serialize"),
        ("worker.partition", "from worker import checkpoint"),
        ("worker.keeper", "from worker.metrics import Metrics"),
        ("worker.exposition", "from worker.metrics import Metrics"),
        ("worker.service", "from worker import __version__"),
        ("worker.service", "from worker.kafka import KafkaConsumer"),
        ("worker.cli", "from worker.service import run"),
    ],
)
def test_an_allowed_import_is_not(module: str, source: str) -> None:
    [found] = imports_of(module, source)
    assert complaint(module, found) is None


def test_a_module_without_a_row_is_seen() -> None:
    assert row_of("worker.surprise") is None
    assert row_of("worker.config.kafka") == f"{BASE} {CONFIG}"
