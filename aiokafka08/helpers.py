"""Small helpers for users, with aiokafka's names. No I/O beside reading certificate files."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def create_ssl_context(
    *,
    cafile: _Path | None = None,
    capath: _Path | None = None,
    cadata: str | bytes | bytearray | memoryview | None = None,
    certfile: _Path | None = None,
    keyfile: _Path | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> ssl.SSLContext:
    """A context for `ssl_context=`: server certificates and host names are verified.

    Old brokers (0.9 on an old Java) speak TLS 1.2 or less; where the context's defaults refuse
    them, lower `minimum_version` on the result, knowingly.

    Args:
        cafile: PEM file of the authorities that sign the brokers' certificates.
        capath: folder of such files, named as OpenSSL wants it.
        cadata: such certificates themselves, PEM text or DER bytes. None of the three: the
            system's.
        certfile: PEM file of the client's certificate, for brokers that ask for one.
        keyfile: its private key, where that isn't in `certfile`.
        password: that of the private key. None: OpenSSL asks on the terminal if it needs one.

    Raises:
        OSError: a file can't be read.
        ssl.SSLError: a file isn't what it should be.
    """
    context = ssl.create_default_context(
        ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata
    )
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
