"""`write_text` writes what prometheus-client writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from aiokafka08._core.metrics.metric_family import MetricFamily
from aiokafka08._core.metrics.text_format import write_text

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8)
NUMBERS = st.integers(-1, 2**53) | st.floats(0, 1e18, allow_nan=False)
FAMILIES = st.lists(
    st.builds(
        MetricFamily,
        st.sampled_from(["kafka_x", "kafka_y_total", "kafka_z"]),
        st.just("Meaning of it"),
        st.just(("topic", "partition")),
        st.lists(
            st.tuples(st.tuples(TEXT, TEXT), NUMBERS), max_size=5, unique_by=lambda one: one[0]
        ),
    ),
    max_size=3,
    unique_by=lambda family: family.name,
)


class Same(Collector):
    """The families, for prometheus-client."""

    def __init__(self, families: list[MetricFamily]) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        made: list[Metric] = []
        for family in self.families:
            make = CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily
            one = make(family.name, family.help, labels=family.labels)
            for labels, value in family.series:
                one.add_metric(labels, value)
            made.append(one)
        return made


def parsed(text: bytes) -> list[Metric]:
    return list(text_string_to_metric_families(text.decode()))


@given(FAMILIES)
def test_text_is_that_of_prometheus_client(families: list[MetricFamily]) -> None:
    assert parsed(write_text(families)) == parsed(generate_latest(Same(families)))


def test_text_of_a_family() -> None:
    family = MetricFamily("kafka_x", "Meaning", ("t",), [(('a"b\\c\n',), 3), (("d",), 0.5)])
    assert write_text([family, MetricFamily("n_total", "Number", series=[((), 7)])]) == (
        b"# HELP kafka_x Meaning\n# TYPE kafka_x gauge\n"
        b'kafka_x{t="a\\"b\\\\c\\n"} 3\nkafka_x{t="d"} 0.5\n'
        b"# HELP n_total Number\n# TYPE n_total counter\nn_total 7\n"
    )
