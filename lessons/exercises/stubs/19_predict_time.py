"""19_predict_time: how many seconds training will take (lesson 19).

Count the FLOPs of all matrix products, forward and backward, of n_pairs sentence pairs without padding, and divide by
the rate. The model is the paper's, with h d_k = h d_v = d_model; biases, softmax, LayerNorm and Adam are left out, and
so is the lookup of embeddings, which multiplies nothing. A causal mask spares nothing.

    N          layers of the encoder, and as many of the decoder
    d_model, d_ff, V (pieces of the vocabulary)
    S, T       source and target tokens of each pair
    n_pairs    how many pairs
    rate       FLOPs per second
"""

from scratchformer.commands.learn import check_file


def predict_seconds(N, d_model, d_ff, V, S, T, n_pairs, rate):
    raise NotImplementedError
    return seconds


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
