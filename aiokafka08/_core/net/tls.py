"""Build the SSL context that TLS options describe.

The Spark data source and the command line call it. Programs pass an `ssl_context` of their own.
"""

from __future__ import annotations

import ssl

from aiokafka08._core.properties import TlsOptions
from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.helpers import create_ssl_context


def ssl_context(
    tls: TlsOptions | None, *, prefix: str = "", hint: str = ""
) -> ssl.SSLContext | None:
    """Return the SSL context that the options describe, or None without TLS.

    `prefix` precedes the properties' names in the error, `hint` ends it. Raises
    KafkaConfigurationError if a file can't be read, or isn't PEM.
    """
    if tls is None:
        return None
    try:
        context = create_ssl_context(
            cafile=tls.cafile,
            certfile=tls.certfile,
            keyfile=tls.keyfile,
            # Without a password, an encrypted key is an error, and no prompt that hangs a job.
            password=tls.password or "",
        )
    except (OSError, ValueError) as error:
        files = {
            "CA file": tls.cafile,
            "client certificate": tls.certfile,
            "private key": tls.keyfile,
        }
        shown = ", ".join(f"{kind} {path!r}" for kind, path in files.items() if path is not None)
        raise KafkaConfigurationError(
            f"{prefix}ssl.*: {shown}: {error}; expected readable PEM files{hint}"
        ) from error
    context.check_hostname = tls.check_hostname and tls.verify
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    return context
