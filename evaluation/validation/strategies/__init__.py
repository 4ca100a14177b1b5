"""Published figures of training strategies and communication techniques, computed again."""
