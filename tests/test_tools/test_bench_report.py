"""The report: goals reached and missed, peers left out, failed measurements, `--before`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import ROOT
from tests.tools.bench import peers, run
from tests.tools.bench.__main__ import _clients, _parser
from tests.tools.bench.cases import (
    BEFORE,
    CASES,
    CONSUME,
    FLOOR_SEND,
    HEADLINE,
    PRODUCE,
    RATIOS,
    Client,
)
from tests.tools.bench.growth import IN_FLIGHT, PARTITIONS, WIDE, Growth, Point, points
from tests.tools.bench.growth_report import section
from tests.tools.bench.peers import Peers, UnavailableError
from tests.tools.bench.report import Record, as_json, document, from_json

MANY = PRODUCE.clients[0]


def _plot() -> ModuleType:
    """Return the module that draws; importing matplotlib takes a second in each process."""
    from tests.tools.bench import plot

    return plot


def measured(cpu_seconds: float, seconds: float = 1.0, **more: float) -> dict[str, float]:
    found = {"messages": 1e6, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_rss_mb": 50.0}
    return found | {"ticker_p999_ms": 1.0, "ticker_max_ms": 1.0} | more


def record(**cpu_seconds: float) -> Record:
    """Return a run with the given rows of ours, and confluent's, which takes 4 seconds."""
    made = Record("a machine", 1, 1_000_000, 0.0)
    for client in PRODUCE.clients:
        if client.words in cpu_seconds:
            made.results[PRODUCE][client].append(measured(cpu_seconds[client.words]))
        elif client.module == "confluent":
            made.results[PRODUCE][client].append(measured(2.0, seconds=4.0))
    return made


def test_a_reached_goal_has_no_reason() -> None:
    assert "## Missed goals" not in document(record(**{MANY.words: 0.2}))


def test_a_missed_goal_has_figure_and_reason() -> None:
    assert MANY.goal is not None
    [line] = [
        line
        for line in document(record(**{MANY.words: 0.5})).splitlines()
        if line.startswith(f"| {PRODUCE.title} | {MANY.words}")
    ]
    assert "CPU 0.50 > 0.3" in line
    assert MANY.goal.why in line


def test_a_late_ticker_is_a_miss() -> None:
    made = record()
    made.results[PRODUCE][MANY].append(measured(0.1, ticker_p999_ms=35.0))
    assert "ticker 35 > 20 ms" in document(made)


def test_every_goal_about_cpu_has_a_reason() -> None:
    for case in (PRODUCE, CONSUME):
        for client in case.clients:
            if client.goal is not None and client.goal.cpu_per_million is not None:
                assert client.goal.why, client.words


@pytest.mark.parametrize(("peers_cpu", "missed"), [(6.0, False), (4.0, True)])
def test_the_pure_twin_is_compared_with_kafka_python(peers_cpu: float, missed: bool) -> None:
    ratio = RATIOS[0]
    text = document(record(**{ratio.ours: 1.0, ratio.peer: peers_cpu}))
    _, _, section = text.partition("## Pure Python and kafka-python")
    [line] = [line for line in section.splitlines() if line.startswith(f"| {ratio.case.title} |")]
    assert f"{peers_cpu:.1f} ×" in line
    assert ("missed" in line) is missed


def test_every_ratio_names_rows_of_its_case() -> None:
    for ratio in RATIOS:
        assert {ratio.ours, ratio.peer} <= {client.words for client in ratio.case.clients}


def test_every_floor_is_a_row_of_its_case() -> None:
    for case in CASES:
        floors = {client.words for client in case.clients if client.is_floor}
        assert {client.floor for client in case.clients if client.floor} <= floors


def test_cpu_over_that_of_the_floor_is_a_median_of_rounds() -> None:
    made = record()
    floor = next(one for one in PRODUCE.clients if one.words == MANY.floor)
    made.results[PRODUCE][MANY] = [measured(cpu) for cpu in (0.3, 0.9, 0.5)]
    made.results[PRODUCE][floor] = [measured(cpu) for cpu in (0.1, 0.5, 0.25)]
    made.results[PRODUCE][MANY.before()] = made.results[PRODUCE][MANY]
    _, _, section = document(made).partition("## This package and its floors")
    rows = [line for line in section.splitlines() if line.startswith(f"| {PRODUCE.title}")]
    assert rows[0] == f"| {PRODUCE.title} | {MANY.words} | {MANY.floor} | 2.00 × |"
    assert not [line for line in rows if MANY.floor in line and "before" in line]


def grown(cpu_of_many: float, fill: float = 520.0, pipelined: float = 8.0) -> Growth:
    """Return all points; those of ≥ 1,000 partitions need `cpu_of_many` times as much CPU."""
    growth = Growth()
    for point in points():
        cpu = cpu_of_many if point.partitions >= 1000 else 1.0
        fast = dict(point.options).get("max_in_flight_requests_per_connection") == IN_FLIGHT[-1]
        sent = {"batches": 1e6 / fill, "requests": 1000.0, "bytes": 126e6}
        more = {} if point.call == "getmany" else sent
        growth.results[point].append(measured(cpu, 1 / pipelined if fast else 1.0, **more))
    growth.round_trips_ms = {(1, 0): 0.5, (1, 1): 1.6, (1, 50): 50.7}
    return growth


def test_growth_within_its_goals_misses_nothing() -> None:
    text = "\n".join(section(grown(1.4)))
    assert "| 1.40 | ≤ 1.5 |  |" in text
    assert "| 8.0 | ≥ 5 × |  |" in text


def test_growth_beyond_its_goals_is_named() -> None:
    assert "| 1.60 | ≤ 1.5 | 1.60 × |" in "\n".join(section(grown(1.6)))
    assert f"| {'; '.join(['fill 400'] * len(PARTITIONS))} |" in "\n".join(section(grown(1.0, 400)))
    assert "| 3.0 | ≥ 5 × | 3.0 × |" in "\n".join(section(grown(1.0, pipelined=3.0)))


def test_growth_up_to_10000_partitions_has_its_goal() -> None:
    def row(cpu_of_many: float) -> str:
        text = "\n".join(section(grown(cpu_of_many)))
        _, _, wide = text.partition("### Up to 10,000 partitions")
        return next(line for line in wide.splitlines() if line.startswith("| send |"))

    assert row(1.4).endswith("| 1.40 | ≤ 1.5 |  |")
    assert row(1.6).endswith("| 1.60 | ≤ 1.5 | 1.60 × |")


def test_growth_of_one_table_shows_only_that(tmp_path: Path) -> None:
    growth = Growth()
    growth.results.update(
        {point: found for point, found in grown(1.0).results.items() if point.table == WIDE}
    )
    text = "\n".join(section(growth))
    assert "### Up to 10,000 partitions" in text
    assert text.count("### ") == 1
    _plot().plot_growth(growth, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_a_failed_point_of_growth_leaves_the_others(tmp_path: Path) -> None:
    growth = grown(1.0)
    lost: Point = next(iter(growth.results))
    growth.results[lost].clear()
    growth.failures.append(f"growth, {lost}: not done after 240 s")
    made = record()
    made.growth = growth
    text = document(made)
    assert "not done after 240 s" in text
    assert "| send_many, 1 broker | failed | " in text
    _plot().plot_growth(growth, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_measurements_are_in_the_json_and_the_plot(tmp_path: Path) -> None:
    made = record(**{MANY.words: 0.2})
    made.growth = grown(1.0)
    assert f'"{MANY.words}"' in as_json(made)
    assert '"round_trip_ms": 50.7' in as_json(made)
    _plot().plot(made.results, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_picture_of_all_cases_fits_a_screen(tmp_path: Path) -> None:
    record = from_json((ROOT / "docs" / "benchmarks.json").read_text())
    _plot().plot(record.results, tmp_path / "bench.png")
    header = (tmp_path / "bench.png").read_bytes()[16:24]
    width, height = int.from_bytes(header[:4]), int.from_bytes(header[4:])
    assert width < 800
    assert height < 800
    assert (ROOT / "docs" / "benchmarks.png").read_bytes()[16:24] == header


def test_run_without_the_cases_of_the_picture_has_none(tmp_path: Path) -> None:
    made = Record("a machine", 1, 1_000_000, 0.0)
    case = next(one for one in CASES if one not in HEADLINE)
    made.results[case][case.clients[0]].append(measured(0.2))
    _plot().plot(made.results, tmp_path / "bench.png")
    assert not (tmp_path / "bench.png").exists()
    assert "benchmarks.png" not in document(made)


def test_a_failed_measurement_keeps_its_error_text() -> None:
    with pytest.raises(run.FailedError, match="exit code 3: no broker there"):
        run.measure(
            [
                sys.executable,
                "-c",
                "import sys; print('no broker there', file=sys.stderr); sys.exit(3)",
            ]
        )


def test_a_measurement_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "DEADLINE_S", 0.2)
    with pytest.raises(run.FailedError, match=r"not done after 0.2 s"):
        run.measure(["sleep", "600"])


def test_java_without_a_compiler_is_left_out_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UnavailableError, match="no `javac`"):
        Peers(tmp_path).prepare(Client("java", "produce", "Java"))


def test_ours_comes_in_pairs_with_the_checkout_before() -> None:
    options = _parser().parse_args(["--before", "elsewhere", "--ours"])
    chosen = _clients(PRODUCE, options)
    ours = [client for client in chosen if not client.is_floor]
    assert {client.module for client in ours} == {"ours", BEFORE}
    for now, before in zip(ours[::2], ours[1::2], strict=True):
        assert before == now.before()


@pytest.mark.parametrize(("seconds", "worse"), [(1.0, ""), (1.02, ""), (1.05, "messages/s 0.952")])
def test_a_rate_worse_than_before_by_3_percent_is_named(seconds: float, worse: str) -> None:
    made = record(**{MANY.words: 0.2})
    made.results[PRODUCE][MANY] = [measured(0.2, seconds * drift) for drift in (1.0, 2.0)]
    made.results[PRODUCE][MANY.before()] = [measured(0.2, drift) for drift in (1.0, 2.0)]
    [line] = [line for line in document(made).splitlines() if line.endswith(f"| {worse} |")][-1:]
    assert line.startswith(f"| {PRODUCE.title} | {MANY.words} | {1 / seconds:.3f} | 1.000 |")


def test_both_checkouts_are_installed_from_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: dict[str, Path] = {}

    def venv(name: str, requirements: tuple[str, ...], content: str) -> Path:
        installed[name] = Path(requirements[-1])
        return Path(sys.executable)

    monkeypatch.setattr(peers, "_venv", venv)
    both = Peers(tmp_path, ROOT)
    for client in (MANY, MANY.before(), FLOOR_SEND):
        both.prepare(client)
        # The process finds the worker; the job is one that the worker can't do.
        with pytest.raises(run.FailedError, match="KeyError: 'client'"):
            both.measure(client, {})
    assert installed == {"ours": tmp_path / "ours", "before": tmp_path / "before"}
    for copy in installed.values():
        assert (copy / "aiokafka08" / "__init__.py").exists()


def test_a_folder_without_the_package_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="not a checkout"):
        Peers(tmp_path, tmp_path).prepare(MANY.before())


def test_the_page_in_docs_is_generated_from_its_json() -> None:
    docs = ROOT / "docs"
    run_in_docs = from_json((docs / "benchmarks.json").read_text())
    assert document(run_in_docs) == (docs / "benchmarks.md").read_text()
    assert as_json(run_in_docs) == (docs / "benchmarks.json").read_text()
