"""The sticky assignor, at the place where aiokafka has it."""
