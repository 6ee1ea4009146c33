"""Programs of other clients: each prints a line of JSON per step, `["name of the step", result]`.

Arguments: bootstrap servers, a suffix for the names of topics and groups, and for those in Python
the brokers' version ("auto": the client finds it out). `older_clients` runs them.
"""
