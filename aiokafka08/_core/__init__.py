"""Private code that the public packages share."""
