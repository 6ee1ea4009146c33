"""One module per client, and one file for Java's clients; `cases` names their functions."""
