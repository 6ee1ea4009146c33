"""The compiled twin has the interface of the pure ones."""

from aiokafka08.protocol._blobs_py import Blobs as Blobs
from aiokafka08.protocol._columns_py import Columns as Columns
from aiokafka08.protocol._message_set_py import MessageSetBuilder as MessageSetBuilder
from aiokafka08.protocol._message_set_py import MessageSetReader as MessageSetReader
from aiokafka08.protocol._message_set_py import survey as survey
from aiokafka08.protocol.types import Buffer

def crc32(data: Buffer) -> int:
    """The CRC-32 of a buffer, as `zlib.crc32` gives it."""
