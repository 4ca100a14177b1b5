"""Constants of the cost model from measurements, and the measuring itself."""
