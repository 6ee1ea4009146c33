"""The gateway: clients of old Kafka releases on a cluster of today.

A connection of a client has one connection to a broker. Frames go from one to the other in order.
What the broker would refuse is translated, and addresses of brokers are replaced by the gateway's.

- `gateway` has a listener for each broker of the target; `options` says where, `port_table` at
  which port.
- `handler` decides what becomes of a request, `upstream` is the connection to the broker. The
  client's connection is that of the server kit.
- `clients` counts the requests of each client: who needs the gateway.
- `layouts` has the places of the fields that the gateway looks at, in any version of a message;
  `headers`, `addresses` and `api_versions` use them.
- `translator` has old versions translated by `old_produce`, `old_fetch` and `old_offsets`, which
  share `translation`; `error_codes` has what old lines know.

Invariant: only `gateway`, `handler` and `upstream` do I/O; the others are pure but for the file of
the table.
"""
