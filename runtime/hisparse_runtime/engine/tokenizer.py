"""Text <-> tokens: the bytes of UTF-8 are tokens 0-255, the rest of the vocabulary are made-up words."""

import codecs

NUM_BYTE_TOKENS = 256
_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_SYLLABLES = tuple(consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS)


def encode(text: str) -> list[int]:
    return list(text.encode("utf-8"))


def word(token: int) -> str:
    """The text of a token from 256 on: a space and two or more syllables, different for every token."""
    number, syllables = token - NUM_BYTE_TOKENS + len(_SYLLABLES), ""
    while number:
        number, syllable = divmod(number, len(_SYLLABLES))
        syllables += _SYLLABLES[syllable]
    return " " + syllables


class TextStream:
    """Tokens -> text, one by one. A character of several bytes comes out with its last byte; wrong bytes become U+FFFD."""

    def __init__(self) -> None:
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        if token < NUM_BYTE_TOKENS:
            return self._bytes.decode(bytes((token,)))
        return self.finish() + word(token)

    def finish(self) -> str:
        """The text of bytes that no further token completes."""
        text = self._bytes.decode(b"", final=True)
        self._bytes.reset()
        return text
