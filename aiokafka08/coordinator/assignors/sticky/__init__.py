"""The sticky assignor, at the module path that aiokafka gives it."""
