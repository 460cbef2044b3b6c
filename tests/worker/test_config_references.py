"""References of the configuration to the environment and to files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.support.configurations import document, the_problem, with_kafka
from worker.config import loads


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("${N}", {"N": "20"}, 20),
        ("'${N}'", {"N": "20"}, 20),
        ("${N}", {"N": " 20\n"}, 20),
        ("${N:-30}", {}, 30),
        ("${N:-30}", {"N": ""}, 30),
        ("${N:-30}", {"N": "20"}, 20),
        ("${N}0", {"N": "5"}, 50),
        ("'${N}0'", {"N": "5"}, None),
    ],
)
def test_a_value_from_the_environment_is_typed_as_yaml(
    text: str, environ: dict[str, str], expected: int | None
) -> None:
    source = document(models=f"\n  default:\n    n_estimators: {text}")
    if expected is None:
        assert the_problem(source, environ).endswith("found another value in ${N}")
    else:
        assert loads(source, environ).models.default.n_estimators == expected


@pytest.mark.parametrize(
    ("text", "environ", "topic"),
    [
        ("${STAGE}-events", {"STAGE": "test"}, "test-events"),
        ("${STAGE}.${TEAM:-core}.events", {"STAGE": "test"}, "test.core.events"),
        ("${TOPIC}", {"TOPIC": "2024"}, "2024"),
        ("${TOPIC:-a-b}", {}, "a-b"),
    ],
)
def test_references_inside_a_text_are_replaced(text: str, environ: dict[str, str], topic: str) -> None:
    assert loads(document(input=f'{{topic: "{text}"}}'), environ).input.topic == topic


def test_a_value_is_not_expanded_twice() -> None:
    properties = loads(with_kafka('sasl.password: "${PASSWORD}"'), {"PASSWORD": "${HOME} 08"}).kafka
    assert properties["sasl.password"] == "${HOME} 08"


@pytest.mark.parametrize(
    ("content", "password"),
    [
        ("hunter2", "hunter2"),
        ("hunter2\n", "hunter2"),
        ("hunter2\r\n\n", "hunter2"),
        (" 0123 \n", " 0123 "),
        ("-----BEGIN-----\nhunter2\n", "-----BEGIN-----\nhunter2"),
        ("${HOME}", "${HOME}"),
        ("\ufeffhunter2\n", "hunter2"),
    ],
)
def test_a_reference_to_a_file_is_its_text_without_the_last_line_end(
    content: str, password: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_bytes(content.encode())
    properties = loads(with_kafka(f'sasl.password: "${{file:{tmp_path}/password}}"'), {}).kafka
    assert properties["sasl.password"] == password


def test_references_to_files_and_variables_go_together(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("prod\n")
    text = f'{{topic: "${{file:{tmp_path}/a b}}-${{file}}.${{file:-events}}"}}'
    assert loads(document(input=text), {"file": "x"}).input.topic == "prod-x.x"
    (tmp_path / "trees").write_text(" 20\n")
    model = loads(document(models=f"\n  default:\n    n_estimators: ${{file:{tmp_path}/trees}}"), {}).models.default
    assert model.n_estimators == 20


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("${TOPIC}", "${TOPIC}, which is not set in the environment and has no default"),
        ("a-${TOPIC}", "${TOPIC}, which is not set in the environment and has no default"),
        ("${TOPIC", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${TOPIC-x}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${TOPIC:-${OTHER}}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${file:relative}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${file:/}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${file:/tmp}", "${file:/tmp}, which cannot be read: Is a directory"),
        ("${file:/no/such/file}", "${file:/no/such/file}, which cannot be read: No such file or directory"),
        (r"${file:/a\0b}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        (r"${file:/\ud800}", "half of a surrogate pair, which is no character"),
        ("${1}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
    ],
)
def test_a_reference_that_cannot_be_resolved_is_named(text: str, found: str) -> None:
    problem = the_problem(document(output=f'{{topic: "{text}"}}'))
    assert problem.startswith("worker.yaml:2: output.topic: expected a topic name")
    assert problem.endswith(f", found {found}")


def test_what_the_environment_has_that_is_no_text_is_refused() -> None:
    """Python reads a byte that is none of UTF-8 as half of a surrogate pair, which nothing could be written with."""
    problem = the_problem(document(models="{null_key: '${KEY}'}"), {"KEY": "a\udcff"})
    assert problem.endswith("found half of a surrogate pair, which is no character")


def test_a_file_of_data_is_not_read_to_its_end() -> None:
    """Which this one has not: without a bound the process would be killed for its memory."""
    problem = the_problem(with_kafka("sasl.password: '${file:/dev/zero}'"))
    assert problem.endswith("found ${file:/dev/zero}, which has more than 262,144 characters")


def test_a_property_at_which_librdkafka_would_cut_the_text_off_is_refused(tmp_path: Path) -> None:
    """A password in UTF-16 is one of UTF-8, too: its first letter would be taken for all of it."""
    (tmp_path / "password").write_bytes("hunter2".encode("utf-16-le"))
    for value in (f'"${{file:{tmp_path}/password}}"', r'"hunter2\0"'):
        problem = the_problem(with_kafka(f"sasl.password: {value}"))
        assert problem.endswith("found a NUL, at which librdkafka would cut the text off")
        assert "hunter" not in problem
