"""The gateway: clients of old Kafka releases on a cluster of today.

A connection of a client has one connection to a broker. Frames go from one to the other in order.
What the broker would refuse is translated, and addresses of brokers are replaced by the gateway's.

- `gateway` has a listener for each broker of the target; `option_table` has the options, `config`
  reads them, `options` checks them, `port_table` says at which port.
- `handler` decides how a request is handled, `upstream` is the connection to the broker. The
  client's connection is that of the server kit; `exchanges` change responses on their way to it.
  `shared_state` has what all connections share.
- `target_connection` opens connections to the target, with its TLS and SASL; `client_security` has
  the TLS and SASL of the listeners.
- `peers` has other gateways, which clients see as brokers; `zookeeper_mirror` keeps a ZooKeeper
  current, for clients that find brokers there.
- `access` says what clients may use, and `answers` makes the responses to the rest.
- `clients` counts the requests of each client: who needs the gateway. `measurements` and `metrics`
  have times and failures.
- `headers` reads the header of a request. `layouts` describes requests and responses in any
  version, and `messages` reads and writes them, whole or in part; `addresses` and `api_versions`
  use it.
- `translated_requests` has old versions translated by `old_produce`, `old_fetch` and `old_offsets`,
  which share `translation`; `error_codes` has the error codes that old lines know.
- `check` finds what would keep a gateway from working. `target_sample` asks the target for that,
  by a `target_client`.

Invariant: only `gateway`, `handler`, `translated_requests`, `upstream`, `exchanges`,
`target_connection`, `target_client`, `target_sample` and `zookeeper_mirror` do I/O or use the event
loop; the others are pure but for the files of the table, the options and the listeners.
"""
