"""The arguments of aiokafka's `describe_configs` and `alter_configs`, which the client refuses."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError


class ConfigResourceType(enum.IntEnum):
    """The kinds of resources that have a configuration, with Kafka's numbers."""

    BROKER = 4
    TOPIC = 2


class ConfigResource:
    """A broker or a topic whose configuration is meant.

    Args:
        resource_type: a member of `ConfigResourceType`, or its name in any case.
        name: the topic, or the broker's id.
        configs: names of settings with their values.

    Raises:
        IllegalArgumentError: there is no such type.
    """

    def __init__(
        self,
        resource_type: ConfigResourceType | str,
        name: str,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            types = {one.name: one for one in ConfigResourceType}
            name_of_type = str(resource_type).upper()
            if name_of_type not in types:
                raise IllegalArgumentError(
                    f"resource_type={shorten(resource_type)}: expected one of {', '.join(types)}"
                )
            resource_type = types[name_of_type]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs
