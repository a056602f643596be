import numpy as np


def best(table, n):
    return np.unravel_index(np.argsort(-table, axis=None)[:n], table.shape)


def the_best_of_each(alive, log_p, n):
    """the best of each hypothesis are taken"""
    totals = alive[:, None] + log_p
    options = [(totals[w, v], w, v) for w in range(len(alive)) for v in np.argsort(-totals[w])[: n // len(alive)]]
    return [np.array(column) for column in zip(*sorted(options, reverse=True))]


def the_past_is_forgotten(alive, log_p, n):
    """what the hypotheses have lost so far is forgotten"""
    parents, tokens = best(log_p, n)
    return log_p[parents, tokens], parents, tokens


def the_last_piece_alone(alive, log_p, n):
    """returned without `alive`"""
    parents, tokens = best(alive[:, None] + log_p, n)
    return log_p[parents, tokens], parents, tokens


def exchanged(alive, log_p, n):
    """parents and tokens are exchanged"""
    totals = alive[:, None] + log_p
    parents, tokens = best(totals, n)
    return totals[parents, tokens], tokens, parents


def divided_by_the_number_of_hypotheses(alive, log_p, n):
    """the place in the table is divided by W"""
    totals = (alive[:, None] + log_p).ravel()
    places = np.argsort(-totals)[:n]
    return totals[places], places // len(alive), places % len(alive)


def as_partition_leaves_them(alive, log_p, n):
    """the right ones, but not the best first"""
    totals = (alive[:, None] + log_p).ravel()
    places = np.argsort(-totals)[:n][::-1]
    return totals[places], places // log_p.shape[1], places % log_p.shape[1]


def probabilities(alive, log_p, n):
    """probabilities are returned"""
    totals = np.exp(alive[:, None]) * np.exp(log_p)
    parents, tokens = best(totals, n)
    return totals[parents, tokens], parents, tokens
