"""An embedded cluster behind TLS: docs/guides/tls.md."""

import asyncio
import contextlib
import functools
import ssl
import subprocess

from aiokafka08.testing import EmbeddedCluster

HOST = "127.0.0.2"  # advertised: the proxy's. The brokers listen on 127.0.0.1, on the same ports


def make_certificate(folder):
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=kafka"
    for extension in (f"subjectAltName=IP:{HOST}", "keyUsage=digitalSignature,keyCertSign"):
        command += f" -addext {extension}"
    command += " -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


async def copy(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def forward(port, reader, writer):
    with contextlib.closing(writer), contextlib.suppress(OSError):
        plain_reader, plain_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, plain_writer), copy(plain_reader, writer))


@contextlib.asynccontextmanager
async def tls_cluster(folder, **options):
    """Run an embedded cluster behind TLS; yield it and the file of its authority."""
    cert, key = make_certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    async with EmbeddedCluster(advertised_host=HOST, **options) as cluster:
        with contextlib.ExitStack() as proxies:
            for node in cluster.nodes.values():
                handler = functools.partial(forward, node.port)
                proxy = await asyncio.start_server(handler, HOST, node.port, ssl=context)
                proxies.callback(proxy.close)
            yield cluster, cert
