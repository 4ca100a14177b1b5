"""Job graphs from models in PyTorch: traced without memory for weights, ops counted, and measured where wanted."""
