"""The reference of all keys as a page in Markdown: `python -m worker.config.reference > config/README.md`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any

from worker.config import Config
from worker.config.keys import Decides, Key, OverrideList, Properties, Section, keys
from worker.config.values import Kind

_INTRODUCTION = f"""# Configuration

One YAML file, read once at the start. [worker.yaml](worker.yaml) holds every key with its default, to be copied.
This page is made of the declarations in `worker/config/` by `python -m worker.config.reference`.

`${{VAR}}` and `${{VAR:-default}}` come from the environment, where `HOSTNAME` is always known;
`${{file:/run/secrets/x}}` is the text of a file. All errors of a file are reported at once, each with its key, its
line and what was expected. `amf-worker check FILE --verbose` prints the effective configuration with secrets masked.

What `kafka` holds are librdkafka's properties: TLS and SASL go there. Those on which the guarantees rest
(`isolation.level`, `transactional.id`, ...) are reserved: setting one is an error that says why. A name or a value that
librdkafka does not take it says once all else is right, one at a time. With ACLs a
worker's user needs READ on the input topic and the group, WRITE on the output and dead-letter topics and on the
transactional id `<group.id>:<group.instance.id>` (prefix `<group.id>:` without instance ids, with
`input.repartition` and with `run --processes`); DESCRIBE_CONFIGS on the topics lets it check their settings, and with
`group.protocol: consumer` that on the cluster. With `input.repartition` it also needs READ on the group
`<group.id>-repartition`, and READ, WRITE and DESCRIBE_CONFIGS on the topic `<group.id>--<input.topic>-repartition`, and
CREATE unless that is made beforehand. `produce` and `reset` need WRITE on the input topic, `check --create-topics`
CREATE. What is missing is named, and so is what to do. A secret is read at the start alone: where it was changed, start
the workers anew.

A key changes the models or it does not, which matters when it is changed while there are checkpoints:

| | with another value |
| --- | --- |
| {Decides.NOTHING.name.lower()} | {Decides.NOTHING.value} |
| {Decides.HISTORY.name.lower()} | {Decides.HISTORY.value} |
| {Decides.INTAKE.name.lower()} | {Decides.INTAKE.value} |
| {Decides.SPEC.name.lower()} | {Decides.SPEC.value} |
"""


def reference() -> str:
    """The page."""
    return "\n".join([_INTRODUCTION, *_rows(Config, "")]) + "\n"


def _rows(section: type[Any], path: str) -> Iterator[str]:
    """Tables of the keys of a section, those of its own first, then those of the sections within."""
    own = {name: each for name, each in keys(section).items() if not isinstance(each.kind, Section)}
    if own:
        yield "| key | default | takes | changes | |"
        yield "| --- | --- | --- | --- | --- |"
        for name, each in own.items():
            assert each.decides is not None
            takes = _in_cell(getattr(each.kind, "expected", ""))
            changes = each.decides.name.lower()
            yield f"| `{path}{name}` | {_default(each)} | {takes} | {changes} | {_in_cell(each.sentence)} |"
        yield ""
    for name, each in keys(section).items():
        if isinstance(each.kind, Section):
            yield f"## {path}{name}"
            yield ""
            yield _in_cell((each.kind.type.__doc__ or "").partition("\n")[0])
            yield ""
            yield from _rows(each.kind.type, f"{path}{name}.")


def _default(key: Key) -> str:
    if key.default is MISSING:
        return "must be given" if not isinstance(key.kind, Properties | OverrideList) else "none"
    value = key.kind.dump(key.default) if isinstance(key.kind, Kind) else list(key.default)  # type: ignore[call-overload]
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _in_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
