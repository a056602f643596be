import numpy as np


def counted(sentences, extra=1):
    return np.array([len(sentence) + extra for sentence in sentences])


def the_end_is_not_counted(log_probabilities, sentences, alpha):
    """</s> is not counted"""
    return log_probabilities / ((5 + counted(sentences, 0)) / 6) ** alpha


def the_start_is_counted(log_probabilities, sentences, alpha):
    """<s> is counted"""
    return log_probabilities / ((5 + counted(sentences, 2)) / 6) ** alpha


def multiplied(log_probabilities, sentences, alpha):
    """multiplied by the penalty"""
    return log_probabilities * ((5 + counted(sentences)) / 6) ** alpha


def a_power_of_the_length(log_probabilities, sentences, alpha):
    """divided by n^alpha"""
    return log_probabilities / counted(sentences) ** alpha


def the_six_outside(log_probabilities, sentences, alpha):
    """the 6 stands outside the power"""
    return log_probabilities / ((5 + counted(sentences)) ** alpha / 6)


def subtracted(log_probabilities, sentences, alpha):
    """the penalty is subtracted"""
    return log_probabilities - ((5 + counted(sentences)) / 6) ** alpha


def without_alpha(log_probabilities, sentences, alpha):
    """`alpha` is ignored"""
    return log_probabilities / ((5 + counted(sentences)) / 6)
