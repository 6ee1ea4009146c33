"""Run a Kerberos KDC on loopback, MIT's of Debian unpacked without root, as a context manager.

Invariant: nothing outside ``folder`` is read or written: programs get ``environment``, which names
the realm's own krb5.conf. ``stop()`` and ``start()`` are an outage; keytabs and tickets stay.

Called by ``sasl.py`` and by tests of GSSAPI. All calls block.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.brokers.errors import HarnessError
from tests.brokers.java_process import JavaProcess
from tests.brokers.ports import accepts, free_port
from tests.brokers.reaper import reaper
from tests.brokers.waiting import wait_for
from tests.support.debian_tools import debian_folder

REALM = "AIOKAFKA08.TEST"
_START_ATTEMPTS = 5
_PACKAGES = ("krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev")
# Unpacked even where they are installed: programs and headers need their own release of them.
_LIBRARIES = ("libgssapi-krb5-2", "libkrb5-3", "libk5crypto3", "libkrb5support0")

_KRB5_CONF = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  default_ccache_name = FILE:{folder}/ccache
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
[dbmodules]
  db_module_dir = {libraries}/krb5/plugins/kdb
"""
_KDC_CONF = """\
[kdcdefaults]
  kdc_ports = {port}
  kdc_tcp_ports = {port}
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    max_life = 1d
    max_renewable_life = 7d
  }}
[dbmodules]
  db_module_dir = {libraries}/krb5/plugins/kdb
[logging]
  kdc = STDERR
"""


def kerberos_folder() -> Path:
    """Return the folder with MIT's programs, libraries and headers.

    Raises:
        MissingPackageError: this machine can't get them.
    """
    return debian_folder(*_PACKAGES, *_LIBRARIES, dependencies=True)


def library_folder() -> Path:
    """Return the folder of `kerberos_folder` with the shared libraries."""
    return next(kerberos_folder().glob("usr/lib/*/libkrb5.so.3")).parent


class Kdc:
    """A realm with its KDC. ``environment`` leads Kerberos programs and libraries to it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aiokafka08-brokers-kdc-"))
        reaper.watch_folder(self.folder)
        self._root, self._libraries = kerberos_folder(), library_folder()
        self._process: JavaProcess | None = None
        self.principals: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._create()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def krb5_conf(self) -> Path:
        """The realm's krb5.conf."""
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for clients of the realm."""
        return {"KRB5_CONFIG": str(self.krb5_conf)}

    def start(self) -> None:
        """Start the KDC on its port, and wait until it accepts connections."""
        for _ in range(_START_ATTEMPTS):
            process = self._process = JavaProcess(
                "KDC",
                ["env", *self._assignments(), str(self._root / "usr/sbin/krb5kdc"), "-n"],
                self.folder / "kdc.log",
            )
            wait_for(lambda: not process.running or accepts(self.port), 20, process.log_tail)  # noqa: B023
            if process.running:
                return
            self._choose_port()
        raise HarnessError(f"KDC: ended at its start:\n{process.log_tail()}")

    def tickets(self, name: str, service: str = f"krbtgt/{REALM}") -> int:
        """Return how many tickets for a service a principal has got since the last start."""
        assert self._process is not None
        text = f", {name}@{REALM} for {service}@{REALM}"
        lines = self._process.stderr().splitlines()
        return sum("ISSUE: " in line and text in line for line in lines)

    def stop(self) -> None:
        """Kill the KDC, as in an outage."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Let the KDC hang: it accepts connections, and never answers."""
        assert self._process is not None
        self._process.pause()

    def resume(self) -> None:
        """End `pause`."""
        assert self._process is not None
        self._process.resume()

    def close(self) -> None:
        """Stop the KDC and remove its files. May be called twice."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        reaper.forget_folder(self.folder)

    def add_principal(self, name: str, *, ticket_s: int = 86_400) -> Path:
        """Create a principal whose tickets live ``ticket_s``; return its keytab.

        One of this name is replaced: a test may run once for each event loop.
        """
        keytab = self.keytab(name)
        if f"{name}@{REALM}" in self.administer("listprincs").split():
            self.administer(f"delprinc -force {name}")
        keytab.unlink(missing_ok=True)
        if name not in self.principals:
            self.principals.append(name)
        self.administer(f'addprinc -clearpolicy -randkey -maxlife "{ticket_s} seconds" {name}')
        self.administer(f"ktadd -k {keytab} {name}")
        return keytab

    def administer(self, query: str) -> str:
        """Run a query of kadmin.local and return its output."""
        return self._run("usr/sbin/kadmin.local", "-r", REALM, "-q", query)

    def kinit(self, name: str, cache: Path, *options: str) -> None:
        """Write a ticket of a principal with a keytab into a credential cache."""
        keytab = str(self.keytab(name))
        self._run("usr/bin/kinit", "-c", str(cache), *options, "-k", "-t", keytab, name)

    def keytab(self, name: str) -> Path:
        """Return the path of a principal's keytab."""
        return self.folder / f"{name.replace('/', '-')}.keytab"

    def _create(self) -> None:
        self._choose_port()
        self._run("usr/sbin/kdb5_util", "create", "-r", REALM, "-s", "-P", "of-no-value")
        self.start()

    def _choose_port(self) -> None:
        self.port = free_port()
        self.krb5_conf.write_text(self._text(_KRB5_CONF))
        (self.folder / "kdc.conf").write_text(self._text(_KDC_CONF))

    def _text(self, template: str) -> str:
        return template.format(
            realm=REALM,
            folder=self.folder,
            libraries=self._libraries,
            port=self.port,
        )

    def _variables(self) -> dict[str, str]:
        return {
            **self.environment,
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "LD_LIBRARY_PATH": str(self._libraries),
        }

    def _assignments(self) -> list[str]:
        return [f"{name}={value}" for name, value in self._variables().items()]

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._root / program), *arguments],
            env={**os.environ, **self._variables()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        # kadmin.local ends with 0 after an error, too.
        if done.returncode or (program.endswith("kadmin.local") and done.stderr.strip()):
            raise HarnessError(f"{program} {arguments}: {done.stdout}{done.stderr}")
        return done.stdout
