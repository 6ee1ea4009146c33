"""Helpers for users, with aiokafka's names. Their only I/O is reading certificate files."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator

# Argument of `create_ssl_context`, and option of the command line
_PASSWORD_OPTIONS = "(password, or ssl.key.password)"
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
    """Return a context for the option `ssl_context`; it verifies certificates and host names.

    Old brokers (0.9 on an old Java) support TLS 1.2 at most. If the context's defaults reject them,
    lower `minimum_version` of the returned context.

    Args:
        cafile: PEM file of the authorities that sign the brokers' certificates (default None).
        capath: Folder of such files, named as OpenSSL expects (default None).
        cadata: Such certificates as PEM text or DER bytes (default None). Without any of the three,
            the system's authorities are trusted.
        certfile: PEM file of the client's certificate, for brokers that request one (default None).
        keyfile: Its private key; None: it is in `certfile` (default None).
        password: The password of the private key, or a function that returns it. None: it
            isn't encrypted (default None).

    Raises:
        OSError: A file can't be read; the text names it.
        ssl.SSLError: A file isn't a valid certificate or key, or the password is wrong.
    """
    # OpenSSL's errors name no file, and it ignores a folder that doesn't exist.
    for file in (cafile, certfile, keyfile):
        if file:
            open(file, "rb").close()
    if capath:
        os.scandir(capath).close()
    with _naming(cafile=cafile, capath=capath):
        context = ssl.create_default_context(
            ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata
        )
    if certfile is not None:
        with _naming(certfile=certfile, keyfile=keyfile):
            try:
                # With None OpenSSL prompts on the terminal, and blocks the event loop meanwhile.
                context.load_cert_chain(certfile, keyfile, "" if password is None else password)
            except ssl.SSLError as error:
                problem = _key_problem(keyfile or certfile, has_password=bool(password))
                if problem is not None and not error.reason:
                    error.strerror = problem
                raise
    return context


def _key_problem(keyfile: _Path, *, has_password: bool) -> str | None:
    """Return why a private key can't be read, as text; None if its file doesn't show it."""
    # OpenSSL says "PEM lib" for all of this.
    with open(keyfile, "rb") as file:
        pem = file.read()
    if b"PRIVATE KEY" not in pem:
        return "the file has no private key"
    if b"ENCRYPTED" not in pem:
        return None
    if has_password:
        return f"the private key is encrypted, and the password is wrong {_PASSWORD_OPTIONS}"
    return f"the private key is encrypted: expected its password {_PASSWORD_OPTIONS}"


@contextlib.contextmanager
def _naming(**arguments: object) -> Iterator[None]:
    """Begin the text of OpenSSL's errors with these arguments."""
    try:
        yield
    except ssl.SSLError as error:
        shown = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
        error.strerror = f"{', '.join(shown) or 'cadata'}: {error.strerror}"
        raise
