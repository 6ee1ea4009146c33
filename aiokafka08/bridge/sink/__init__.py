"""Write in transactions: `sink` is the entry, `claims` keeps out other bridges, `worker` writes."""
