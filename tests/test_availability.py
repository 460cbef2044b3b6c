"""What a machine lacks is a failure in CI, and said elsewhere."""

from __future__ import annotations

import pytest

from tests.availability import give_up


@pytest.mark.parametrize(
    ("environment", "outcome"),
    [({}, pytest.skip.Exception), ({"CI": "false"}, pytest.skip.Exception), ({"CI": "true"}, pytest.fail.Exception)],
    ids=str,
)
def test_what_is_missing_skips_a_test_but_fails_it_in_ci(
    environment: dict[str, str], outcome: type[BaseException]
) -> None:
    with pytest.raises(outcome, match="no Java"):
        give_up("no Java", environment)
