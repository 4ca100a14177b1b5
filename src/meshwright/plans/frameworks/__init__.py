"""Training frameworks: which layouts each of them runs, and how it numbers ranks."""
