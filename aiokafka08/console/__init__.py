"""The console: web pages about a cluster, as an ASGI application (extra `console`).

    from aiokafka08.console import app

    console = app(bootstrap_servers="kafka1:9092", authorize=is_operator)

It is read-only, unless `allow` names changes. `aiokafka08 console` serves it, and
docs/guides/console.md mounts it in a FastAPI service. The pages are in `_tools.console`.
"""

from aiokafka08._tools.console.application import Console as Console
from aiokafka08._tools.console.application import app as app

__all__ = ["Console", "app"]
