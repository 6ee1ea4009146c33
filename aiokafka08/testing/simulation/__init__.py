"""The parts of a simulation: virtual time, a network, and what stands behind it."""
