"""Read configuration files and the environment, and merge them with a command's options.

`property_files` parses the files, `settings` merges.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiokafka08._tools.cli.settings import (
    ENVIRONMENT,
    Settings,
    Source,
    environment_source,
    flag_source,
    settings,
)
from aiokafka08.errors import IllegalArgumentError


def merged_settings(
    given: Mapping[str, Any],
    timeout_s: float | None = None,
    *,
    start_timeout_s: float | None = None,
) -> Settings:
    """Merge the values of the connection options with environment, profile and file.

    Args:
        given: the values by the names of the parameters: `bootstrap`, `zookeeper`, `properties`,
            `config`, `profile`.
        timeout_s: the value of `--timeout` (default None).
        start_timeout_s: how long to wait for the first broker, in place of the settings' value
            (default None).

    Raises:
        IllegalArgumentError: an option, a variable or a file is wrong.
    """
    bootstrap, zookeeper = given.get("bootstrap"), given.get("zookeeper")
    properties, config = given.get("properties") or (), given.get("config")
    flags = [
        ("-b", bootstrap),
        ("--zookeeper", zookeeper),
        *(("-X", text) for text in properties),
        ("-F", config),
        ("--profile", given.get("profile")),
    ]
    sources = [
        *file_sources(config, given.get("profile")),
        environment_source(os.environ),
        flag_source(bootstrap, zookeeper, properties, timeout_s),
    ]
    if start_timeout_s is not None:
        sources.append(Source("default", {"start.timeout.ms": str(round(start_timeout_s * 1000))}))
    merged = settings(sources)
    # The flags are printed in commands that may be run in another shell, without the variables.
    if bootstrap is None and merged.origin == ENVIRONMENT:
        flags[0] = ("-b", merged.bootstrap_servers)
        flags[1] = ("--zookeeper", merged.zookeeper_connect)
    words = [word for name, text in flags if text is not None for word in (name, text)]
    return replace(merged, flags=tuple(words))


def file_sources(config: str | None, profile: str | None) -> list[Source]:
    """Read the configuration file and the profile; the profile is last and overrides the file.

    Without `--config` and `--profile`, the variables AIOKAFKA08_CONFIG and AIOKAFKA08_PROFILE name
    them. The profiles are in the `--config` file if that is a .toml file, otherwise in
    ~/.config/aiokafka08/config.toml. The latter file's default profile is only used without
    `--config`.

    Raises:
        IllegalArgumentError: a file can't be read, has a wrong line, or lacks the profile.
    """
    from aiokafka08._tools.cli import property_files

    config = config or os.environ.get("AIOKAFKA08_CONFIG")
    profile = profile or os.environ.get("AIOKAFKA08_PROFILE")
    sources: list[Source] = []
    profiles = profiles_file(config)
    if config is not None and not config.endswith(".toml"):
        parse = (
            property_files.parse_java
            if config.endswith(".properties")
            else property_files.parse_conf
        )
        sources.append(parse(read_text(config), config))
        if profile is None:
            return sources
    if profile is not None or config is not None or profiles.is_file():
        text = read_text(str(profiles))
        sources.append(property_files.parse_profile(text, str(profiles), profile))
    return sources


def profiles_path() -> Path:
    """Return the path of the user's profiles, used unless `--config` names a .toml file."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder, "aiokafka08", "config.toml")


def profiles_file(config: str | None) -> Path:
    """Return the .toml file that `--config` or its variable names; else `profiles_path()`."""
    config = config or os.environ.get("AIOKAFKA08_CONFIG")
    return Path(config) if config is not None and config.endswith(".toml") else profiles_path()


def read_text(path: str) -> str:
    """Return the text of a configuration file, without a byte order mark.

    Raises:
        IllegalArgumentError: the file can't be read, or is UTF-16.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise IllegalArgumentError(
            f"configuration file {path}: {error.strerror or error}; expected a readable file"
        ) from None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise IllegalArgumentError(f"configuration file {path}: UTF-16; expected UTF-8: convert it")
    data = data.removeprefix(codecs.BOM_UTF8)  # some editors write it
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")  # the encoding of .properties files before Java 9
