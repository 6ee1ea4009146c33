"""Groups' offsets on their way to the target and back."""
