"""`BatchBuilder`, at the module path that aiokafka gives it."""

from aiokafka08.producer.batch_builder import BatchBuilder

__all__ = ["BatchBuilder"]
