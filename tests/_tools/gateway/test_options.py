"""The gateway's options and its table of ports: what is accepted, and what an error says."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafka08._tools.gateway.options import MAX_BROKERS, gateway_options, listener_port
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError

pytestmark = pytest.mark.fast


# --- options --------------------------------------------------------------------------------------


def test_default_serves_this_machine_only() -> None:
    options = gateway_options("kafka:9092")
    assert options.listen == ("127.0.0.1", 9092)
    assert options.is_allowed("127.0.0.1")
    assert not options.is_allowed("10.0.0.1")
    assert not options.is_allowed("?")


@pytest.mark.parametrize("listen", ["10.0.0.5:9092", "0.0.0.0:9092", "[::]:9092"])
def test_other_address_needs_networks_or_open(listen: str) -> None:
    with pytest.raises(IllegalArgumentError, match="--allow, or say --open"):
        gateway_options("kafka:9092", listen, advertise="gateway")
    assert gateway_options("kafka:9092", listen, advertise="g", open=True).is_allowed("8.8.8.8")


def test_only_allowed_networks_are_served() -> None:
    options = gateway_options("kafka:9092", "10.0.0.5:9092", allow=["10.0.0.0/24", "2001:db8::/32"])
    assert options.is_allowed("10.0.0.9")
    assert options.is_allowed("::ffff:10.0.0.9")
    assert options.is_allowed("2001:db8::1%eth0")
    assert not options.is_allowed("10.0.1.9")
    assert not options.is_allowed("127.0.0.1")
    assert options.advertise == "10.0.0.5"


@pytest.mark.parametrize("listen", ["10.0.0.5:9092", "127.0.0.1:9092"])
def test_networks_and_open_together_are_refused(listen: str) -> None:
    with pytest.raises(IllegalArgumentError, match="--open and --allow"):
        gateway_options("kafka:9092", listen, allow=["10.0.0.0/24"], open=True)


def test_address_that_clients_cannot_use_needs_another_host() -> None:
    with pytest.raises(IllegalArgumentError, match="--advertise"):
        gateway_options("kafka:9092", "0.0.0.0:9092", open=True)


@pytest.mark.parametrize(
    "host",
    ["", "g:9092", "0.0.0.0", "::", "a b", "http://gateway", "g\n", "[::1]", "x" * 256],
)
def test_host_that_clients_cannot_use_is_refused(host: str) -> None:
    with pytest.raises(IllegalArgumentError, match="--advertise"):
        gateway_options("kafka:9092", advertise=host)


@pytest.mark.parametrize(
    "host", ["gateway", "kafka-1.example.org", "10.0.0.5", "2001:db8::1", "a_b"]
)
def test_host_is_what_clients_get(host: str) -> None:
    assert gateway_options("kafka:9092", advertise=host).advertise == host


@pytest.mark.parametrize("listen", ["localhost:9092", "9092", "127.0.0.1:x", "a:1,b:2", ""])
def test_wrong_listen_address_is_refused(listen: str) -> None:
    with pytest.raises(IllegalArgumentError, match="--listen"):
        gateway_options("kafka:9092", listen)


@pytest.mark.parametrize("network", ["10.0.0.1/24", "everywhere", ""])
def test_wrong_network_is_refused(network: str) -> None:
    with pytest.raises(IllegalArgumentError, match="--allow"):
        gateway_options("kafka:9092", "10.0.0.5:9092", allow=[network])


def test_port_beyond_the_last_one_is_refused() -> None:
    options = gateway_options("kafka:9092", "127.0.0.1:65535")
    assert listener_port(options, 0) == 65535
    with pytest.raises(IllegalArgumentError, match="65535 leaves none for broker number 2"):
        listener_port(options, 1)


# --- the table of ports ---------------------------------------------------------------------------


def test_new_broker_never_renumbers_others(tmp_path: Path) -> None:
    path = tmp_path / "listeners.json"
    table = PortTable(path)
    table.add([5, 3])
    table.add([1, 3])
    again = PortTable(path)
    again.add([5, 4])
    assert [again.indices[node_id] for node_id in (3, 5, 1, 4)] == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


def test_ports_that_would_belong_to_other_brokers_are_refused(tmp_path: Path) -> None:
    """As when `peers` are added, whose entry takes the first port."""
    path = tmp_path / "listeners.json"
    PortTable(path).add([3, 5])  # as earlier releases wrote it, without ports
    PortTable(path, first_ports={"": 9092, "billing": 9192}).add([3])
    for ports in ({"": 9093}, {"": 9092, "billing": 9191}, {"": 9094}, {"": 9090}):
        with pytest.raises(
            KafkaConfigurationError, match=r"listeners\.json: the first broker's port"
        ):
            PortTable(path, first_ports=ports)
    PortTable(path).add([7])
    with pytest.raises(KafkaConfigurationError, match="was 9192 at billing, and would be 9195"):
        PortTable(path, first_ports={"billing": 9195})
    moved = PortTable(path, first_ports={"": 19092})  # no port is another broker's
    moved.add([3])
    assert moved.indices == {3: 0, 5: 1, 7: 2}
    with pytest.raises(KafkaConfigurationError, match="was 19092, and would be 19091"):
        PortTable(path, first_ports={"": 19091})


def test_second_gateway_with_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "listeners.json"
    with PortTable(path).lock():
        PortTable(path).with_new([1])  # `gateway check` may read it
        with pytest.raises(KafkaConfigurationError, match=r"listeners\.json: another gateway uses"):
            PortTable(path).lock()
        with PortTable(tmp_path / "other.json").lock(), PortTable().lock():
            pass
    with PortTable(path).lock():
        pass


def test_port_of_something_else_is_no_brokers() -> None:
    table = PortTable(taken={2})
    table.add([5, 6])
    table.add([7, 8])
    assert [table.indices[node_id] for node_id in (5, 6, 7, 8)] == [0, 1, 3, 4]


def test_no_broker_gets_the_port_of_another_listener(tmp_path: Path) -> None:
    table = PortTable(tmp_path / "listeners.json", taken={1}, room=3)
    table.add([5, 6])
    with pytest.raises(IllegalStateError, match="leave 3 ports for 3 brokers"):
        table.add([7])
    assert table.indices == {5: 0, 6: 2}
    with pytest.raises(IllegalStateError, match="leave 2 ports for 2 brokers"):
        PortTable(tmp_path / "listeners.json", room=2).add([5])


def test_table_has_a_limit() -> None:
    table = PortTable()
    with pytest.raises(IllegalStateError, match=f"at most {MAX_BROKERS}"):
        table.add(range(MAX_BROKERS + 1))
    assert table.indices == {}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"listeners": []}', '{"listeners": {"x": 0}}',
        '{"listeners": {}, "first_ports": []}', '{"listeners": {}, "first_ports": {"": "x"}}',
        '{"listeners": {"1": -1}}', '{"listeners": {"1": 0, "2": 0}}', '{"listeners": {"1": "0"}}',
    ],
)  # fmt: skip
def test_damaged_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "listeners.json"
    path.write_text(text)
    with pytest.raises(KafkaConfigurationError, match=r"listeners\.json: not a table"):
        PortTable(path)
    assert path.read_text() == text


def test_table_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    table = PortTable(tmp_path / "missing" / "listeners.json")
    with pytest.raises(KafkaConfigurationError, match="can't be written"):
        table.add([1])
    with pytest.raises(KafkaConfigurationError, match="can't be written"):
        table.lock()
    assert table.indices == {}
