"""The least that a case can cost: scripts that exchange the same bytes without a client."""
