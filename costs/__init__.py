"""How long and how much: compute, memory and communication."""
