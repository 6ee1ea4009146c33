"""Fetch 0 to 3 by version 10: how batches come down, and how clients pass what they can't see."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from aiokafka08 import TopicPartition, environment
from aiokafka08._tools.gateway.headers import read_head
from aiokafka08._tools.gateway.layouts import TakesLongError
from aiokafka08._tools.gateway.old_fetch import FetchPositions, translate_fetch
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol import record_batch
from aiokafka08.protocol.api import Topic, decode_response, encode_request
from aiokafka08.protocol.compression import BatchCodec, Codec, compress
from aiokafka08.protocol.message_set import MessageSetReader, encode_entry
from aiokafka08.protocol.requests.fetch import NO_LIMIT, FetchPartition, FetchRequest
from tests._tools.gateway.gateways import responded
from tests.protocol.batch_oracle import Row, batch, marker

pytestmark = pytest.mark.twins  # without the compiled one they need crcmod

NOW_MS = 1_795_000_000_000
LARGE = 1 << 20


class Fetched(NamedTuple):
    """What a client gets of a partition."""

    error: int
    high_watermark: int
    message_set: bytes

    @property
    def values(self) -> list[tuple[int, bytes | None]]:
        reader = MessageSetReader(
            TopicPartition("t", 0), self.message_set, 0, max_decompressed_bytes=LARGE
        )
        return [(one.offset, one.value) for one in reader.read(1000)]


def rows(*offsets: int, value: bytes = b"v") -> list[Row]:
    return [Row(at, NOW_MS + at, b"k", value, ((b"header", b"h"),)) for at in offsets]


class Client:
    """A client of one version, and of partition 0 of topic t."""

    def __init__(
        self, version: int = 1, max_bytes: int = LARGE, *, is_read_committed: bool = False
    ) -> None:
        self.version = version
        self.max_bytes = max_bytes
        self.is_read_committed = is_read_committed
        self.counted = Budget()
        self.positions = FetchPositions()

    def translate(self, offset: int, total_bytes: int = NO_LIMIT) -> Translation:
        partitions = [FetchPartition(0, offset, self.max_bytes)]
        request = FetchRequest(-1, 100, 1, [Topic("t", partitions)], max_bytes=total_bytes)
        frame = memoryview(b"".join(encode_request(request, self.version, 7, "me")[1:]))
        return translate_fetch(
            read_head(frame), frame, self.positions, is_read_committed=self.is_read_committed
        )

    def fetch(
        self,
        offset: int,
        records: bytes,
        high_watermark: int = 1000,
        *,
        error: int = 0,
        aborted: Sequence[tuple[int, int]] = (),
        asked_from: int | None = None,
        total_bytes: int = NO_LIMIT,
    ) -> Fetched:
        """Fetch from a target that returns these records; it must be asked from `asked_from`."""
        translation = self.translate(offset, total_bytes)
        assert asked(translation)[0] == (offset if asked_from is None else asked_from)
        answer = response({("t", 0): (error, high_watermark, records)}, aborted)
        self.counted = Budget()
        made = responded(translation, answer, self.counted)
        decoded = decode_response(FetchRequest, self.version, made)
        assert decoded.throttle_time_ms == (30 if self.version else 0)
        (one,) = decoded.topics[0].partitions
        return Fetched(one.error_code, one.high_watermark, bytes(one.message_set))


def response(
    partitions: dict[tuple[str, int], tuple[int, int, bytes]],
    aborted: Sequence[tuple[int, int]] = (),
) -> bytes:
    """Return a response of version 10 by the protocol guide."""
    out = struct.pack(">iihii", 7, 30, 0, 0, len(partitions))
    for (topic, partition), (error, high_watermark, records) in partitions.items():
        out += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", 1)
        out += struct.pack(">ihqqqi", partition, error, high_watermark, 5, 0, len(aborted))
        out += b"".join(struct.pack(">qq", *one) for one in aborted)
        out += struct.pack(">i", len(records)) + records
    return out


def asked(translation: Translation) -> tuple[int, int, int, int]:
    """Return offset, size of the partition, size of all, and isolation of a request."""
    assert translation.request is not None
    data = b"".join(translation.request)
    assert data[:12] == struct.pack(">hhih", 1, 10, 7, 2) + b"me"
    replica, wait_ms, least, most, isolation, session, epoch, topics = struct.unpack_from(
        ">iiiibiii", data, 12
    )
    assert (replica, wait_ms, least, session, epoch, topics) == (-1, 100, 1, 0, -1, 1)
    number, leader_epoch, offset, start, size = struct.unpack_from(">iiqqi", data, 48)
    assert (number, leader_epoch, start) == (0, -1, -1)
    assert data[76:] == bytes(4)  # no forgotten topics
    return offset, size, most, isolation


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("codec", list(BatchCodec))
def test_batches_become_messages_of_the_clients_format(codec: BatchCodec, version: int) -> None:
    fetched = Client(version).fetch(5, batch(rows(5, 6, 9), codec=codec) + batch(rows(12)))
    assert fetched.error == 0
    assert fetched.high_watermark == 1000
    assert fetched.values == [(5, b"v"), (6, b"v"), (9, b"v"), (12, b"v")]
    magic, attributes = fetched.message_set[16:18]
    assert magic == int(version >= 2)
    assert attributes == (Codec.SNAPPY if codec is BatchCodec.ZSTD else codec)


def test_messages_and_errors_are_counted() -> None:
    client, old = Client(0), encode_entry(5, b"k", b"v") + encode_entry(6, b"k", b"v")
    client.fetch(6, batch(rows(5, 6, 9)) + batch(rows(12)) + marker(13, 1, 7))
    assert (client.counted.messages, client.counted.errors) == (3, 0)
    client.fetch(5, old)  # as a target up to 3.9 may have it
    assert (client.counted.messages, client.counted.errors) == (2, 0)
    client.fetch(5, b"", error=6)
    assert (client.counted.messages, client.counted.errors) == (0, 1)


def test_batches_of_a_writable_frame_are_converted_without_the_gil(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compiled twin releases it only for bytes that can't change; `join` only for `bytes`."""
    convert_plain = record_batch.convert_plain
    inputs: list[bool] = []
    outputs: list[type] = []

    def convert(*given: Any, **more: Any) -> Any:
        converted = convert_plain(*given, **more)
        inputs.append(memoryview(given[1]).readonly)
        outputs.append(type(converted.data))
        return converted

    monkeypatch.setattr(record_batch, "convert_plain", convert)
    records = batch(rows(0, 1)) + batch(rows(2))
    answer = bytearray(response({("t", 0): (0, 3, records)}))
    made = Client(0).translate(0).respond(memoryview(answer), Budget())
    assert isinstance(made, list)
    assert (inputs, outputs) == ([True, True], [bytes, bytes])
    assert encode_entry(2, b"k", b"v") in made[-1]


def test_append_time_stays_the_brokers() -> None:
    data = batch(rows(5), attributes=8, max_timestamp_ms=NOW_MS + 77)
    fetched = Client(2).fetch(5, data)
    assert fetched.message_set[17] == 8
    assert int.from_bytes(fetched.message_set[18:26], "big") == NOW_MS + 77


def test_request_has_the_clients_limits() -> None:
    assert asked(Client(3, 5000).translate(7, 9000)) == (7, 5000, 9000, 0)
    assert asked(Client(1, 5000).translate(7)) == (7, 5000, 64 << 20, 0)
    assert asked(Client(1, is_read_committed=True).translate(7))[3] == 1


# --- sizes ----------------------------------------------------------------------------------------


def test_set_is_cut_by_whole_messages() -> None:
    data = batch(rows(0, 1, 2)) + batch(rows(3))
    size = len(encode_entry(0, b"k", b"v"))
    for room, count in ((2 * size, 2), (2 * size - 1, 1), (4 * size - 1, 3), (4 * size, 4)):
        fetched = Client(1, room).fetch(0, data)
        assert [offset for offset, _ in fetched.values] == list(range(count))
        assert len(fetched.message_set) == count * size


@pytest.mark.parametrize("codec", [BatchCodec.NONE, BatchCodec.GZIP])
def test_first_message_comes_whatever_its_size(codec: BatchCodec) -> None:
    fetched = Client(1, 10).fetch(
        0, batch(rows(0, value=bytes(5000)), codec=codec) + batch(rows(1))
    )
    assert fetched.values == [(0, bytes(5000))]


def test_partitions_take_turns_when_they_want_more_than_the_target_is_asked_for() -> None:
    """Below version 3 clients expect some of each partition, and send the same order each time."""
    topics = [
        Topic(topic, [FetchPartition(number, 0, 30 << 20) for number in range(2)])
        for topic in ("a", "b")
    ]
    request = FetchRequest(-1, 100, 1, topics)
    positions, firsts = FetchPositions(), []
    for _ in range(8):
        frame = memoryview(b"".join(encode_request(request, 1, 7, "me")[1:]))
        step = translate_fetch(read_head(frame), frame, positions, is_read_committed=False)
        assert step.request is not None
        data = b"".join(step.request)
        topic, number = data[43:44], int.from_bytes(data[48:52], "big")
        firsts.append((topic.decode(), number))
    assert firsts[:4] == firsts[4:]
    assert sorted(firsts[:4]) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_all_sets_of_a_response_share_what_may_be_decompressed() -> None:
    """A batch that is too much for this response comes with a later one, whose first it is."""
    data = batch(rows(0, value=bytes(100 << 20)), codec=BatchCodec.GZIP)
    client = Client(1, LARGE)
    for asked_of in ((0, 1), (1,)):
        partitions = [FetchPartition(one, 0, LARGE) for one in asked_of]
        request = FetchRequest(-1, 100, 1, [Topic("t", partitions)])
        frame = memoryview(b"".join(encode_request(request, 1, 7, "me")[1:]))
        step = translate_fetch(read_head(frame), frame, client.positions, is_read_committed=False)
        answer = response({("t", one): (0, 9, data) for one in asked_of})
        with pytest.raises(TakesLongError):
            step.respond(memoryview(answer), Budget(is_quick=True))
        found = decode_response(FetchRequest, 1, responded(step, answer))
        sizes = [len(one.partitions[0].message_set) > 0 for one in found.topics]
        assert sizes == [True, False][: len(asked_of)]


def test_size_of_all_sets_is_limited_from_version_3_on() -> None:
    partitions = [FetchPartition(number, 0, LARGE) for number in range(3)]
    request = FetchRequest(-1, 100, 1, [Topic("t", partitions)], max_bytes=60)
    frame = memoryview(b"".join(encode_request(request, 3, 7, "me")[1:]))
    translation = translate_fetch(
        read_head(frame), frame, FetchPositions(), is_read_committed=False
    )
    data = batch(rows(0, 1))
    answer = response({("t", number): (0, 9, data) for number in range(3)})
    made = decode_response(FetchRequest, 3, responded(translation, answer))
    found = [len(topic.partitions[0].message_set) for topic in made.topics]
    size = len(encode_entry(0, b"k", b"v", magic=1))
    assert found == [size, 0, 0]


# --- what a client doesn't see --------------------------------------------------------------------


def test_client_passes_control_batches_at_the_end_of_the_log() -> None:
    client = Client()
    assert client.fetch(3, marker(3, 1, 9) + marker(4, 1, 9), 5) == (0, 3, b"")
    assert client.fetch(3, b"", 5, asked_from=5) == (0, 3, b"")
    assert client.fetch(3, batch(rows(5)), 6, asked_from=5).values == [(5, b"v")]
    assert client.fetch(6, b"", 6) == (0, 6, b"")


def test_what_is_skipped_is_looked_at_again_when_no_fetch_has_come_for_long() -> None:
    """The topic may have been deleted meanwhile, and another one of its name be there."""
    client = Client()
    now_s = 0.0
    with environment.replace(monotonic=lambda: now_s):
        client.fetch(3, marker(3, 1, 9) + marker(4, 1, 9), 5)
        for _ in range(3):  # as long as there are fetches, the log is the same
            now_s += 50
            assert client.fetch(3, b"", 5, asked_from=5) == (0, 3, b"")
        now_s += 61
        assert client.fetch(3, batch(rows(3, 4)), 5).values == [(3, b"v"), (4, b"v")]


def test_client_passes_control_batches_before_messages() -> None:
    fetched = Client().fetch(3, marker(3, 1, 9) + batch(rows(4)) + marker(5, 0, 9), 6)
    assert fetched.values == [(4, b"v")]
    assert fetched.high_watermark == 6


def test_high_watermark_stays_while_messages_follow_what_was_skipped() -> None:
    assert Client().fetch(3, marker(3, 1, 9), 8) == (0, 8, b"")


def test_client_passes_a_batch_whose_last_records_were_compacted() -> None:
    """A wrapper without a message from the offset on would come for ever."""
    client = Client()
    data = batch(rows(3, 4), last_offset=9, codec=BatchCodec.GZIP)
    assert client.fetch(6, data, 20) == (0, 20, b"")
    client.translate(6)
    assert asked(client.translate(6))[0] == 10


def test_log_that_was_cut_is_asked_from_the_clients_offset_again() -> None:
    client = Client()
    client.fetch(3, marker(3, 1, 9), 4)
    assert client.fetch(3, b"", -1, error=1, asked_from=4) == (0, 3, b"")
    assert client.fetch(3, b"", -1, error=1) == (1, -1, b"")


@pytest.mark.parametrize("error", [3, 6, 9, 56])
def test_log_that_may_be_another_one_is_asked_from_the_clients_offset_again(error: int) -> None:
    """A topic that was created again gives messages to offsets that had none."""
    client = Client()
    client.fetch(3, marker(3, 1, 9), 4)
    assert client.fetch(3, b"", -1, error=error, asked_from=4).error != 0
    assert client.fetch(3, batch(rows(3, 4)), 5).values == [(3, b"v"), (4, b"v")]


def test_aborted_records_come_unless_only_committed_ones_are_read() -> None:
    aborted = batch(rows(0, 1), attributes=0x10, producer_id=9, producer_epoch=0)
    open_ = batch(rows(2), attributes=0x10, producer_id=8, producer_epoch=0)
    again = batch(rows(4), attributes=0x10, producer_id=9, producer_epoch=0)
    data = aborted + open_ + marker(3, 0, 9) + again + marker(5, 1, 9)
    assert [at for at, _ in Client().fetch(0, data).values] == [0, 1, 2, 4]
    committed = Client(is_read_committed=True).fetch(0, data, aborted=[(9, 0)])
    assert [at for at, _ in committed.values] == [2, 4]


# --- what logs of old brokers have ----------------------------------------------------------------


def test_messages_in_old_formats_pass_or_come_down() -> None:
    old = encode_entry(0, None, b"a") + encode_entry(1, None, b"b")
    newer = encode_entry(2, None, b"c", magic=1, timestamp_ms=NOW_MS)
    inner = encode_entry(0, None, b"d", magic=1, timestamp_ms=NOW_MS)
    inner += encode_entry(1, None, b"e", magic=1, timestamp_ms=NOW_MS)
    packed = compress(Codec.GZIP, inner, magic=1)
    newer += encode_entry(4, None, packed, magic=1, attributes=1, timestamp_ms=NOW_MS)
    wanted = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, b"e"), (5, b"v")]
    data = old + newer + batch(rows(5))
    assert Client(2).fetch(0, data).values == wanted
    assert Client(2).fetch(0, data).message_set.startswith(old + newer)
    in_format_0 = Client(1).fetch(0, data)
    assert in_format_0.values == wanted
    assert in_format_0.message_set[16] == 0
    assert Client(1).fetch(2, data).values == wanted[2:]
    assert Client(1, len(old)).fetch(0, data).message_set == old


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code", "old"), [(0, 1, 1), (0, 29, 3), (1, 29, 29), (1, 75, 6), (3, 78, 5)]
)
def test_codes_are_those_that_the_line_knows(version: int, code: int, old: int) -> None:
    assert Client(version).fetch(0, b"", -1, error=code) == (old, -1, b"")


def test_damaged_batch_is_an_error_after_the_batches_before_it() -> None:
    damaged = batch(rows(1), crc_error=1)
    client = Client()
    assert client.fetch(0, batch(rows(0)) + damaged).values == [(0, b"v")]
    assert client.fetch(1, damaged) == (2, 1000, b"")


def test_cut_off_batch_at_the_end_is_left_out() -> None:
    assert Client().fetch(0, batch(rows(0)) + batch(rows(1))[:-1]).values == [(0, b"v")]


def test_mutated_responses_are_converted_or_refused() -> None:
    chance = random.Random(4)
    data = batch(rows(0, 1), codec=BatchCodec.GZIP) + marker(2, 1, 9) + batch(rows(3))
    frame = response({("t", 0): (0, 9, data)}, [(9, 1)])
    refused = 0
    for _ in range(1000):
        mutated = bytearray(frame)
        for _ in range(chance.randrange(1, 4)):
            mutated[chance.randrange(4, len(frame))] = chance.choice((0, 1, 127, 128, 255))
        client = Client(chance.randrange(4), is_read_committed=chance.random() < 0.5)
        translation = client.translate(0)
        try:
            made = responded(translation, bytes(mutated))
        except KafkaProtocolError:
            refused += 1
        else:
            decode_response(FetchRequest, client.version, made)
    assert 50 < refused < 950
