"""Run a real cluster until Ctrl-C or SIGTERM: ``python -m tests.brokers 0.8.2.2``.

Prints addresses to stdout, for scripts, as lines "name value"; and everything else to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests.brokers.class_archive import archive_path, writing_options
from tests.brokers.cluster import RealCluster
from tests.brokers.errors import HarnessError
from tests.brokers.jars import jar_folder
from tests.brokers.kdc import Kdc
from tests.brokers.sasl import PASSWORDS, PRINCIPALS, REFUSED, SaslUsers
from tests.brokers.versions import VERSIONS, find_version


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.version is None and not options.fetch:
        parser.error(f"version: none is given; expected one of {', '.join(VERSIONS)}")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if options.fetch:
            _fetch([options.version] if options.version else list(VERSIONS))
        else:
            _run(options)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.brokers",
        description="Start real Kafka brokers on 127.0.0.1 and run them until Ctrl-C.",
        epilog=f"Known versions: {', '.join(VERSIONS)}.",
    )
    parser.add_argument("version", nargs="?", type=_version, help="for example 0.8.2.2")
    parser.add_argument(
        "--brokers", type=int, default=1, metavar="N", help="number of brokers (default: 1)"
    )
    parser.add_argument("--ssl", action="store_true", help="with SSL listeners (0.9 or newer)")
    parser.add_argument(
        "--sasl", action="store_true", help="with SASL listeners, a KDC and users (0.9 or newer)"
    )
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        type=_property,
        metavar="KEY=VALUE",
        help="a server property of all brokers; may be repeated",
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="only download the jars, and write the archive of classes with which brokers start"
        " sooner; of all versions, or of the given one",
    )
    return parser


def _version(name: str) -> str:
    try:
        return find_version(name).name
    except HarnessError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE")
    return key, value


def _fetch(versions: Sequence[str]) -> None:
    for version in versions:
        print(f"{version} {jar_folder(version)}", flush=True)
        path = archive_path(find_version(version))
        if not path.exists():
            _write_archive(version, path)


def _write_archive(version: str, path: Path) -> None:
    """Let a broker start, end and write what classes it has loaded."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        partial = Path(folder, path.name)
        with RealCluster(version, java_options=writing_options(partial)) as cluster:
            cluster.stop(0)
        if partial.exists():  # not every JVM can
            partial.rename(path)


def _run(options: argparse.Namespace) -> None:
    print(f"starting Kafka {options.version} ...", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        users = None
        if options.sasl:
            kdc = stack.enter_context(Kdc())
            for principal in PRINCIPALS:
                kdc.add_principal(principal)
            users = SaslUsers(PASSWORDS, kdc, REFUSED)
        cluster = RealCluster(
            options.version,
            options.brokers,
            dict(options.property),
            ssl=options.ssl,
            sasl=users,
        )
        stack.enter_context(cluster)
        print(f"bootstrap_servers {cluster.bootstrap_servers}")
        if find_version(options.version).needs_zookeeper:
            print(f"zookeeper_connect {cluster.zookeeper_connect}")
        if options.ssl:
            print(f"ssl_bootstrap_servers {cluster.ssl_bootstrap_servers}")
            print(f"ca_path {cluster.ca_path}")
        if options.sasl:
            print(f"sasl_bootstrap_servers {cluster.sasl_bootstrap_servers}")
            print(f"krb5_conf {kdc.krb5_conf}")
            print(f"client_keytab {kdc.keytab('client')}")
        sys.stdout.flush()
        print(f"logs are in {cluster.folder}; Ctrl-C stops the cluster", file=sys.stderr)
        endings = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, endings)
        signal.sigwait(endings)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
