"""From text files to padded batches of ids, and from translations to a score; nothing here knows of models."""
