"""From a download to ids on disk: download, unpack, clean, learn a vocabulary, encode."""
