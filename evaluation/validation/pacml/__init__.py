"""The published PAC-ML simulator's figures and decision logs, computed again."""
