// No kernel of ours is atomic: one that is does not compile here.
