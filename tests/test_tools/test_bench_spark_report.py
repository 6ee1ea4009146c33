"""The report of the Spark benchmark: the page in docs/ is the one that its measurements give."""

from __future__ import annotations

import pytest

from tests.support.paths import ROOT
from tests.tools.bench.spark import CASES
from tests.tools.bench.spark_report import as_json, document, from_json

pytestmark = [pytest.mark.spark, pytest.mark.heavy]


def test_page_in_docs_is_generated_from_its_json() -> None:
    docs = ROOT / "docs"
    record = from_json((docs / "benchmarks_spark.json").read_text(), CASES)
    assert document(record) == (docs / "benchmarks_spark.md").read_text()
    assert as_json(record) == (docs / "benchmarks_spark.json").read_text()
