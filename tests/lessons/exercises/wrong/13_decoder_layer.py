def cross_attention_first(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    """cross-attention comes before self-attention"""
    x = add_norm_2(x, cross_attention(x, memory))
    x = add_norm_1(x, self_attention(x))
    return add_norm_3(x, feed_forward(x))


def the_memory_not_read(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    """cross-attention reads x instead of the memory"""
    x = add_norm_1(x, self_attention(x))
    x = add_norm_2(x, cross_attention(x, x))
    return add_norm_3(x, feed_forward(x))


def no_way_around(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    """the ways around are missing"""
    x = add_norm_1(0 * x, self_attention(x))
    x = add_norm_2(0 * x, cross_attention(x, memory))
    return add_norm_3(0 * x, feed_forward(x))


def one_norm_for_all(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    """one Add & Norm stands in all three places"""
    x = add_norm_1(x, self_attention(x))
    x = add_norm_1(x, cross_attention(x, memory))
    return add_norm_1(x, feed_forward(x))


def ways_around_the_layer(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    """every way around begins at the bottom of the layer"""
    y = add_norm_1(x, self_attention(x))
    y = add_norm_2(x, cross_attention(y, memory))
    return add_norm_3(x, feed_forward(y))


def no_norm_at_the_end(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    """the last Add & Norm is missing"""
    x = add_norm_1(x, self_attention(x))
    x = add_norm_2(x, cross_attention(x, memory))
    return feed_forward(x)


def no_cross_attention(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    """cross-attention is missing"""
    x = add_norm_1(x, self_attention(x))
    return add_norm_3(x, feed_forward(x))


def added_here_and_in_the_norm(
    x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3
):
    """x is added twice"""
    x = add_norm_1(x, x + self_attention(x))
    x = add_norm_2(x, x + cross_attention(x, memory))
    return add_norm_3(x, x + feed_forward(x))
