"""The words of a forest: a kernel that looks for one in another's place reads memory that is not the forest's."""

from __future__ import annotations

import inspect

from amf.memory import binding


def test_each_word_has_the_name_of_its_place():
    assert {name: int(getattr(binding, name.upper())) for name in binding._PLACES} == binding._PLACES


def test_addresses_are_written_in_the_order_in_which_they_are_given():
    written = getattr(binding._find_others, "py_func", binding._find_others)
    assert tuple(inspect.signature(written).parameters) == (*binding.Reached._fields, "words")
