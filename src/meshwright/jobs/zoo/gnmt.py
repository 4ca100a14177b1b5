"""GNMT, the zoo's recurrent translation model: four encoder and four decoder LSTM layers with attention.

The layers are those of PipeDream's profile (GNMT v2 with vocabulary 32,320 and width 1,024). A test compares this graph's
parameters with that profile.
"""

from __future__ import annotations

from ..builder import GraphBuilder
from ..graph import JobGraph

VOCABULARY = 32320
WIDTH = 1024


def gnmt(batch_size: int, sequence_length: int) -> JobGraph:
    """Build GNMT with a bidirectional first encoder layer, residual connections from the third layer of each side on.

    An LSTM of ``i`` inputs and ``h`` outputs has ``4 h (i + h)`` weights and ``8 h`` biases and does one
    multiply-add per weight and token. Its steps depend on each other, which the roofline does not see, so the
    times are those of a device that is kept busy.

    Args:
        batch_size: sentence pairs.
        sequence_length: tokens of each sentence, on both sides.

    Source:
        Wu et al., "Google's neural machine translation system", 2016; Narayanan et al., "PipeDream", 2019.
    """
    graph = GraphBuilder("gnmt", batch_size)
    tokens = batch_size * sequence_length
    hidden = tokens * WIDTH

    def embedding(name: str) -> int:
        return graph.add(name, "embedding", [], output=hidden, parameters=VOCABULARY * WIDTH)

    def dropout(name: str, x: int, width: int = WIDTH) -> int:
        return graph.add(name, "dropout", [x], output=tokens * width)

    def lstm(name: str, inputs: list[int], width: int, directions: int = 1) -> int:
        weights = directions * 4 * WIDTH * (width + WIDTH)
        return graph.add(
            name,
            "lstm",
            inputs,
            output=directions * hidden,
            parameters=weights + directions * 8 * WIDTH,
            multiply_adds=tokens * weights,
            workspace_bytes=4 * directions * 4 * batch_size * WIDTH,  # the four gates of one time step in float32
        )

    x = lstm("encoder.lstm1", [embedding("encoder.embedding")], WIDTH, directions=2)
    x = lstm("encoder.lstm2", [dropout("encoder.dropout1", x, 2 * WIDTH)], 2 * WIDTH)
    for layer in (3, 4):
        y = lstm(f"encoder.lstm{layer}", [dropout(f"encoder.dropout{layer - 1}", x)], WIDTH)
        x = graph.add(f"encoder.add{layer}", "add", [y, x], output=hidden)
    memory = x

    x = lstm("decoder.lstm1", [embedding("decoder.embedding")], WIDTH)
    # Additive attention: a projection of queries and one of keys, a score vector over each pair of tokens, the context.
    pairs = tokens * sequence_length
    context = graph.add(
        "decoder.attention",
        "attention",
        [x, memory],
        output=hidden,
        parameters=2 * WIDTH**2 + WIDTH,
        multiply_adds=2 * tokens * WIDTH**2 + 2 * pairs * WIDTH,
        workspace_bytes=2 * batch_size * sequence_length * WIDTH + 4 * pairs,  # one query against all keys; the scores
    )
    for layer in (2, 3, 4):
        dropped = dropout(f"decoder.dropout{layer - 1}", x)
        joined = graph.add(f"decoder.concatenate{layer}", "concatenate", [dropped, context], output=2 * hidden)
        y = lstm(f"decoder.lstm{layer}", [joined], 2 * WIDTH)
        x = y if layer == 2 else graph.add(f"decoder.add{layer}", "add", [y, x], output=hidden)
    logits = graph.add(
        "classifier",
        "linear",
        [x],
        output=tokens * VOCABULARY,
        parameters=VOCABULARY * WIDTH + VOCABULARY,
        multiply_adds=tokens * VOCABULARY * WIDTH,
    )
    graph.add("loss", "loss", [logits], output=tokens, workspace_bytes=4 * tokens * VOCABULARY)
    return graph.build()
