"""Several processes that train one model: communication, the launcher that starts them, and timeouts for failures."""
