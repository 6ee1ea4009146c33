"""Write in transactions: `sink` is the entry, `claims` says who may write, `worker` does it."""
