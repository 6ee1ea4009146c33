"""The whole client on one machine: real input into a topic, back out of it, verified and measured,
and through Spark where there is Java.

    python -m examples.demo                             # on the embedded cluster
    python -m examples.demo --bootstrap localhost:9092  # on a real one

`nox -s demo` does the same with an environment of its own. A stage is a function in a file, taking
what the stages share (`run.Run`) and giving how fast it and its parts were;
`command.STAGES` is their order.
"""
