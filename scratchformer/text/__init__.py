"""From text files to padded batches of ids, and from translations to a score. Nothing here knows about models."""
