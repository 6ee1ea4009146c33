"""What public packages share; none of it is public."""
