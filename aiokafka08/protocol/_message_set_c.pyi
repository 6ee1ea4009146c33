"""The interface of the compiled twin is that of the pure twins."""

from aiokafka08.protocol._binary_column_py import BinaryColumn as BinaryColumn
from aiokafka08.protocol._builder_py import MessageSetBuilder as MessageSetBuilder
from aiokafka08.protocol._columns_py import ColumnMemory as ColumnMemory
from aiokafka08.protocol._columns_py import Columns as Columns
from aiokafka08.protocol._murmur2_py import murmur2 as murmur2
from aiokafka08.protocol._murmur2_py import partitions_of as partitions_of
from aiokafka08.protocol._reader_py import MessageSetReader as MessageSetReader
from aiokafka08.protocol._reader_py import summarize_set as summarize_set
from aiokafka08.protocol._record_batch_py import RecordBatchBuilder as RecordBatchBuilder
from aiokafka08.protocol._record_batch_py import convert_records as convert_records
from aiokafka08.protocol._record_batch_py import read_records as read_records
from aiokafka08.protocol.types import Buffer

def crc32(data: Buffer) -> int:
    """Return the CRC-32 of a buffer, as `zlib.crc32` does."""

def crc32c(data: Buffer, tables: bool = False) -> int:
    """Return the CRC-32C of a buffer; with `tables` without the processor's instruction."""
