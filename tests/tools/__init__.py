"""Programs for maintainers, which no run of pytest collects."""
