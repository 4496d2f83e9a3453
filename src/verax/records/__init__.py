"""Results as plain, versioned, JSON-able records. They hold facts; they compute nothing."""
