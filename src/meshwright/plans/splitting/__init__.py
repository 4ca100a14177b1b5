"""A job graph cut op by op."""
