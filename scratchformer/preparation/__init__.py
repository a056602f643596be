"""From a download to ids on disk: fetch, unpack, clean, learn a vocabulary, encode."""
