"""Tables and views of the format in Spark SQL. Spark passes a table's options to no query of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import fill
from tests.support.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "spark.md"


@pytest.fixture
def table(spark: Any) -> Iterator[str]:
    """Return the name of a table without options."""
    spark.sql("CREATE TABLE events USING kafka08")
    yield "events"
    spark.sql("DROP TABLE events")


def given(cluster: EmbeddedCluster, **options: str) -> str:
    """Return options as SQL: the address of the cluster, and more."""
    all_options = {"kafka.bootstrap.servers": cluster.bootstrap_servers} | options
    return "(" + ", ".join(f"'{name}'='{value}'" for name, value in all_options.items()) + ")"


@pytest.mark.parametrize("clause", ["OPTIONS", "TBLPROPERTIES"])
def test_create_table_with_options_names_the_ways(
    spark: Any, cluster: EmbeddedCluster, clause: str
) -> None:
    with pytest.raises(Exception, match=r"CREATE TABLE with .*FROM table WITH") as caught:
        spark.sql(f"CREATE TABLE refused USING kafka08 {clause} {given(cluster, subscribe='t')}")
    assert "CREATE TEMPORARY VIEW" in str(caught.value)
    assert not spark.catalog.tableExists("refused")


def test_table_reads_with_the_options_of_the_query(
    spark: Any, cluster: EmbeddedCluster, table: str
) -> None:
    fill(cluster, [2, 3])
    [row] = spark.sql(
        f"SELECT count(*), max(offset) FROM {table} WITH {given(cluster, subscribe='t')}"
    ).collect()
    assert tuple(row) == (5, 2)
    with pytest.raises(Exception, match=r"no options: .*FROM table WITH"):
        spark.sql(f"SELECT count(*) FROM {table}").collect()


def test_statements_of_the_page_read_and_write(spark: Any) -> None:
    [block] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with EmbeddedCluster(topics={"events": 1, "copy": 1}) as cluster:
        fill(cluster, [3], "events")
        statements = block.replace("kafka1:9092", cluster.bootstrap_servers).split(";")
        try:
            answers = [spark.sql(one).collect() for one in statements if one.strip()]
        finally:
            spark.catalog.dropTempView("events")
            spark.sql("DROP TABLE IF EXISTS topics")
        assert answers[1][0][0] == len(answers[3]) == 3
        assert [m.value for m in cluster.log("copy", 0)] == [b"0-0", b"0-1", b"0-2"]
