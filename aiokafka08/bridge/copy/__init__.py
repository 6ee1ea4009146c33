"""The copy: sessions, where they begin, and what they report."""
