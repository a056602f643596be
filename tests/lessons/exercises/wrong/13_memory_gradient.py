def overwritten_in_the_loop(dy, back):
    """overwritten: only the share that was computed last"""
    for each in reversed(back):
        dy, dmemory = each(dy)
    return {"dmemory": dmemory, "dx": dy}


def only_the_last_layer(dy, back):
    """the share of layer 1 of 3 is missing; the share of layer 2 of 3 is missing"""
    _, dmemory = back[-1](dy)
    for each in reversed(back):
        dy, _ = each(dy)
    return {"dmemory": dmemory, "dx": dy}


def dy_for_every_layer(dy, back):
    """every layer is handed dy; each needs"""
    return {"dmemory": sum(each(dy)[1] for each in back), "dx": sum(each(dy)[0] for each in back)}


def walked_upwards(dy, back):
    """the layers are walked upwards"""
    dmemory = 0
    for each in back:
        dy, share = each(dy)
        dmemory = dmemory + share
    return {"dmemory": dmemory, "dx": dy}


def the_mean_of_the_layers(dy, back):
    """a mean over the layers"""
    dmemory = 0
    for each in reversed(back):
        dy, share = each(dy)
        dmemory = dmemory + share / len(back)
    return {"dmemory": dmemory, "dx": dy}


def the_last_share_twice(dy, back):
    """the share of layer 3 of 3 is counted 2 times"""
    _, dmemory = back[-1](dy)
    for each in reversed(back):
        dy, share = each(dy)
        dmemory = dmemory + share
    return {"dmemory": dmemory, "dx": dy}


def dx_of_the_last_layer(dy, back):
    """the input of the last layer, not of the first"""
    dmemory, dx = 0, back[-1](dy)[0]
    for each in reversed(back):
        dy, share = each(dy)
        dmemory = dmemory + share
    return {"dmemory": dmemory, "dx": dx}
