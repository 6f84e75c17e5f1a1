"""The table in the docs says what the tests of this folder try."""

from __future__ import annotations

import os

import pytest

from tests.tasks.cases import CASES, KINDS
from tests.tasks.matrix import DOCS, expected, table_in, with_table


@pytest.mark.skipif(os.environ.get("EMCEEPEE_WRITE_MATRIX") == "1", reason="it is written when the tests are done")
def test_the_table_in_the_docs_is_the_one_that_the_tests_give() -> None:
    written = DOCS.read_text(encoding="utf-8")
    assert table_in(written) == expected(), "run EMCEEPEE_WRITE_MATRIX=1 pytest tests/tasks"
    assert with_table(written, expected()) == written


def test_every_row_of_the_table_is_tried_and_every_empty_cell_has_its_reason() -> None:
    assert {case.kind for case in CASES} == set(KINDS)
    assert "not tried" not in expected()
