"""Several processes as one: who talks to whom, who starts whom, and how nobody waits for ever."""
