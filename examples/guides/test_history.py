"""A history that is written by hand, and its anomalies: docs/testing.md explains them."""

from aiokafka08.testing.history import Message, Operation, check


def test_a_poll_that_skips_a_message():
    history = [
        Operation(
            process="producer",
            call="send_many",
            invoked=0.0,
            ended=0.1,
            sent=(Message("orders/0", "tea", 0), Message("orders/0", "milk", 1)),
        ),
        Operation(
            process="consumer",
            call="getmany",
            invoked=0.2,
            ended=0.3,
            polled=(Message("orders/0", "milk", 1),),
        ),
    ]
    assert [anomaly.name for anomaly in check(history)] == ["lost-write", "unseen"]
