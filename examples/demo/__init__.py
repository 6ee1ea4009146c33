"""The whole client on one machine: send real input to a topic, read it back, verify and measure it,
and aggregate it in Spark if there is a Java.

    python -m examples.demo                             # on the embedded cluster
    python -m examples.demo --bootstrap localhost:9092  # on a real one

`nox -s demo` does the same in an environment of its own. A stage is a function in a file of its
own. It takes the state that the stages share (`run.Run`) and returns its speeds. `command.STAGES`
is the order of the stages.
"""
