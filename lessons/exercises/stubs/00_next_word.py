"""00_next_word: which English word each German word looks at (lesson 00).

    On Sunday my brother will follow his cars.
    Am Sonntag wird mein Bruder seinen Autos folgen.

A translator writes the second sentence word by word, and for each word looks into the first. For each German word,
which English word should it look at most? Write the words as they stand above, the full stop as ".",
in the place of None, and take out the line that raises.
"""

from scratchformer.commands.learn import check_file


def where_to_look():
    raise NotImplementedError                                  # take this line out
    return {"Am": None, "Sonntag": None, "wird": None, "mein": None, "Bruder": None, "seinen": None, "Autos": None,
            "folgen": None, ".": None}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
