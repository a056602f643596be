/** Text to ids and back, by byte pairs or by whole words. */

export const PAD = 0;
export const EOS = 1;
export const BOS = 2;
export const UNK = 3;

const SPACE = "▁"; // sentencepiece writes every space as this character, and puts one before the text
const NORMAL = 1; // kinds of pieces, with sentencepiece's numbers
const BYTE = 6;

/** The tokenizer of a description: of whole words if its kind is "words", otherwise of byte pairs. */
export function tokenizerOf(description) {
  return description.kind === "words" ? new WordTokenizer(description) : new Tokenizer(description);
}

/**
 * Byte-pair encoding without Unicode normalisation, as sentencepiece does it: start from single characters, and merge
 * the neighbours whose piece has the highest score until no two neighbours make a piece.
 */
export class Tokenizer {
  #pieces;
  #known = new Map(); // piece -> its id and score
  #bytes = new Map(); // id -> the byte that it stands for
  #idOfByte = new Map();
  #unknown; // what UNK is decoded as

  /** @param {{ pieces: string[], scores: number[], types: number[], unk_surface: string }} description */
  constructor({ pieces, scores, types, unk_surface }) {
    if (scores.length !== pieces.length || types.length !== pieces.length) {
      throw new Error(`The tokenizer has ${pieces.length} pieces, ${scores.length} scores and ${types.length} types.`);
    }
    this.#pieces = pieces;
    this.#unknown = unk_surface;
    pieces.forEach((piece, id) => {
      if (types[id] === NORMAL) this.#known.set(piece, { id, score: scores[id] });
      if (types[id] === BYTE) this.#bytes.set(id, Number(piece.slice(1, -1))); // "<0x41>"
    });
    for (const [id, byte] of this.#bytes) this.#idOfByte.set(byte, id);
  }

  /**
   * The ids of a text, without BOS and EOS. No text is ever encoded as PAD, EOS or BOS.
   *
   * @param {string} text
   * @returns {number[]}
   */
  encode(text) {
    const ids = [];
    const words = withMarks(text).split(/(?=▁)/); // no piece goes on after a space
    for (const piece of words.flatMap((word) => this.#merged([...word]))) {
      if (this.#known.has(piece)) ids.push(this.#known.get(piece).id);
      else if (this.#bytes.size) for (const byte of new TextEncoder().encode(piece)) ids.push(this.#idOfByte.get(byte));
      else if (ids.at(-1) !== UNK) ids.push(UNK); // a run of unknown characters is one unknown piece
    }
    return ids;
  }

  /** Merge the symbols of a word in place, best pair first; of equal pairs, the left one. */
  #merged(symbols) {
    const score = (i) => this.#known.get(symbols[i] + symbols[i + 1])?.score ?? -Infinity;
    const scores = symbols.slice(1).map((_, i) => score(i)); // of symbols i and i + 1
    for (;;) {
      let best = 0;
      for (let i = 1; i < scores.length; i++) if (scores[i] > scores[best]) best = i;
      if (!(scores[best] > -Infinity)) return symbols;
      symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
      scores.splice(best, 1);
      if (best > 0) scores[best - 1] = score(best - 1);
      if (best < scores.length) scores[best] = score(best);
    }
  }

  /**
   * The text of the ids before the first EOS, without PAD and BOS.
   *
   * @param {number[]} ids
   * @returns {string}
   */
  decode(ids) {
    this.#check(ids);
    const end = ids.indexOf(EOS);
    let text = "";
    let bytes = [];
    for (const id of ids.slice(0, end < 0 ? ids.length : end)) {
      if (id === PAD || id === BOS) continue;
      if (this.#bytes.has(id)) {
        bytes.push(this.#bytes.get(id));
        continue;
      }
      text += textOf(bytes);
      bytes = [];
      const piece = this.#pieces[id];
      if (id === UNK) text += this.#unknown;
      else text += (text === "" && piece.startsWith(SPACE) ? piece.slice(1) : piece).replaceAll(SPACE, " ");
    }
    return text + textOf(bytes);
  }

  /** The piece of each id, as a label: "▁" marks the start of a word, "</s>" is EOS. */
  pieces(ids) {
    this.#check(ids);
    return ids.map((id) => this.#pieces[id]);
  }

  #check(ids) {
    const wrong = ids.find((id) => !(id in this.#pieces));
    if (wrong !== undefined) throw new Error(`There is no piece ${wrong}; ids are 0 to ${this.#pieces.length - 1}.`);
  }
}

/**
 * Whole words and punctuation marks, split and joined as in lessons/transformer.py. The vocabulary has no UNK, so a text
 * with another word is refused.
 */
export class WordTokenizer {
  #pieces;
  #ids = new Map(); // word -> its id

  /** @param {{ pieces: string[] }} description  the words, after "▁" if a text has a space before them */
  constructor({ pieces }) {
    this.#pieces = pieces;
    pieces.forEach((piece, id) => this.#ids.set(piece.replace(SPACE, ""), id));
  }

  encode(text) {
    const words = text.match(/[\p{L}\p{N}_-]+|[^\p{L}\p{N}_\s]/gu) ?? [];
    const unknown = [...new Set(words)].filter((word) => !this.#ids.has(word));
    if (unknown.length) {
      const list = unknown.map((word) => `“${word}”`).join(", ");
      throw new Error(`The training text has no ${list}, and the model reads only the words of that text, spelled as there.`);
    }
    return words.map((word) => this.#ids.get(word));
  }

  decode(ids) {
    const end = ids.indexOf(EOS);
    const words = ids.slice(0, end < 0 ? ids.length : end).filter((id) => id !== PAD && id !== BOS);
    return words.map((id) => this.#pieces[id].replace(SPACE, " ")).join("").trimStart();
  }

  pieces(ids) {
    return ids.map((id) => this.#pieces[id]);
  }
}

/** One mark for each run of spaces, one at the beginning, none at the end; nothing for a text of spaces alone. */
function withMarks(text) {
  const words = text.replace(/^ +/, "");
  return words && (SPACE + words.replace(/ +/g, SPACE)).replace(/▁+$/, "");
}

/** Bytes as text; a byte that is no part of a UTF-8 character becomes U+FFFD. */
function textOf(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let start = 0; start < bytes.length; ) {
    const size = [1, 2, 3, 4].find((n) => isCharacter(decoder, bytes.slice(start, start + n))) ?? 0;
    text += size ? decoder.decode(Uint8Array.from(bytes.slice(start, start + size))) : "\ufffd";
    start += size || 1;
  }
  return text;
}

function isCharacter(decoder, bytes) {
  try {
    return decoder.decode(Uint8Array.from(bytes)).length > 0;
  } catch {
    return false;
  }
}
