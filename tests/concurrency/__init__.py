"""Tests of the event-loop primitives."""
