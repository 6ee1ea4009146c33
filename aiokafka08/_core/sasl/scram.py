"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802): the broker proves that it knows the password, too.

It needs brokers from 0.10.2 on, and the package scramp (the extra `sasl`). The server chooses the
number of iterations, and the client limits it: too few would let a false broker find the password,
too many would stop the client.
"""

from __future__ import annotations

import re
from typing import Final

from aiokafka08._core.concurrency.daemon_thread import DaemonThread
from aiokafka08._core.limited_log import one_line
from aiokafka08._core.sasl.mechanism import Mechanism, Steps, missing_extra
from aiokafka08.errors import AuthenticationFailedError

# The least that RFC 7677 and Kafka accept
_MIN_ITERATIONS: Final = 4096
# Far above the most that Kafka stores (16384), and still a matter of seconds
_MAX_ITERATIONS: Final = 1_000_000


class Scram(Mechanism):
    """See `Mechanism`."""

    starts_raw = False

    def __init__(self, name: str, username: str, password: str) -> None:
        try:
            import scramp
        except ImportError:
            raise missing_extra(name, "scramp", "sasl") from None
        self.name = name
        # The broker may ask for a million hashes, which take seconds. The thread computes them, so
        # that they don't hold the event loop; if the connection times out, the error has `wait`.
        self.thread = DaemonThread()
        self.wait = "the hashes of the password haven't been computed"
        self.description = f"{name} as user {username!r}"
        self.hint = (
            f"user name and password, and that {name} is in the broker's sasl.enabled.mechanisms"
        )
        self._scramp = scramp
        self._username = username
        self._password = password
        try:
            scramp.ScramClient([name], username, password)
        except scramp.ScramException:
            raise AuthenticationFailedError(
                "sasl_plain_username or sasl_plain_password: a character isn't allowed in SCRAM"
            ) from None

    @property
    def principal(self) -> str:
        """The user name."""
        return self._username

    async def begin(self, host: str) -> Steps:
        """Return the steps: send the client's nonce, send its proof, check the broker's proof."""
        return self._steps()

    def _steps(self) -> Steps:
        client = self._scramp.ScramClient([self.name], self._username, self._password)
        try:
            first = _decoded((yield client.get_client_first().encode()))
            found = re.search(r"(?:^|,)i=([0-9]+)(?:,|$)", first)
            count = found[1] if found else "0"
            # int() refuses thousands of digits with an error of its own.
            if not _MIN_ITERATIONS <= int(count[:20]) <= _MAX_ITERATIONS:
                raise AuthenticationFailedError(
                    f"{self.description}: the broker asks for {count[:20]} iterations; expected "
                    f"{_MIN_ITERATIONS} to {_MAX_ITERATIONS}"
                )
            client.set_server_first(first)
            client.set_server_final(_decoded((yield client.get_client_final().encode())))
        except (self._scramp.ScramException, ValueError) as error:
            text = f"{self.description}: {one_line(str(error))}"
            raise AuthenticationFailedError(text) from None
        return None


def _decoded(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailedError("SCRAM: the broker's message isn't UTF-8") from None
